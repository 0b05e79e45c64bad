// SPDX-License-Identifier: GPL-2.0
//! The command `pvio`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match pvio::cli::main(std::env::args_os().collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            pvio::say!("{sentence}");
            ExitCode::FAILURE
        }
    }
}
