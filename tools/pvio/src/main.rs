// SPDX-License-Identifier: GPL-2.0
//! The command `pvio`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match pvio::cli::main(std::env::args_os().collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            pvio::say!("{e}");
            ExitCode::FAILURE
        }
    }
}
