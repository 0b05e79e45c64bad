// SPDX-License-Identifier: GPL-2.0
//! The channel on which a back end speaks first.
//!
//! The `vhost` crate receives the channel's socket and keeps it to itself, and
//! has no message that says "the configuration changed". So the socket is also
//! taken from the message before the crate reads it, by peeking.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{send, MsgFlags};

/// Length of a message's header: request, flags, size.
const HEADER: usize = 12;
const SET_BACKEND_REQ_FD: u32 = 21;
const CONFIG_CHANGE: u32 = 2;
/// Version 1, and no answer wanted.
const FLAGS: u32 = 1;

/// What is known of a message before it is read.
#[derive(Default)]
pub struct Peeked {
    /// The request's number; 0 if not even the header is there.
    pub request: u32,
    /// The socket of the channel, where the message brings one.
    pub channel: Option<OwnedFd>,
}

/// Waits for a message and looks at it without taking it.
pub fn peek(sock: &UnixStream) -> io::Result<Peeked> {
    let (request, _) = peek_message(sock, false)?;
    if request != SET_BACKEND_REQ_FD {
        return Ok(Peeked {
            request,
            channel: None,
        });
    }
    let (request, channel) = peek_message(sock, true)?;
    Ok(Peeked { request, channel })
}

/// Room for one descriptor's control message, aligned as the kernel wants it.
type Control = [u64; 4];

/// Not nix's recvmsg(): where descriptors do not fit, it hides the one that did.
fn peek_message(sock: &UnixStream, with_fd: bool) -> io::Result<(u32, Option<OwnedFd>)> {
    let mut header = [0u8; HEADER];
    let mut control: Control = [0; 4];
    let mut iov = libc::iovec {
        iov_base: header.as_mut_ptr().cast(),
        iov_len: HEADER,
    };
    // SAFETY: all-zero is a valid msghdr: no name, no data, no control.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = &mut iov;
    msg.msg_iovlen = 1;
    if with_fd {
        msg.msg_control = control.as_mut_ptr().cast();
        // Not CMSG_SPACE: its padding is room for a second descriptor, which the
        // kernel would make for us, and which would stay open.
        // SAFETY: computes a length.
        msg.msg_controllen = unsafe { libc::CMSG_LEN(size_of::<RawFd>() as u32) } as usize;
    }
    let flags = libc::MSG_PEEK | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: `msg` points to buffers of the stated lengths that outlive the call.
    let n = unsafe { libc::recvmsg(sock.as_raw_fd(), &mut msg, flags) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = first_fd(&msg);
    if n as usize != HEADER {
        return Ok((0, fd));
    }
    let request = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
    Ok((request, fd))
}

fn first_fd(msg: &libc::msghdr) -> Option<OwnedFd> {
    // SAFETY: recvmsg() has filled `msg`; the macro stays within its control buffer.
    let cmsg = unsafe { libc::CMSG_FIRSTHDR(msg).as_ref() }?;
    // SAFETY: computes a length.
    let len = unsafe { libc::CMSG_LEN(size_of::<RawFd>() as u32) } as usize;
    let is_rights = cmsg.cmsg_level == libc::SOL_SOCKET && cmsg.cmsg_type == libc::SCM_RIGHTS;
    if !is_rights || cmsg.cmsg_len < len {
        return None;
    }
    // SAFETY: the control message holds at least one descriptor, which the
    // kernel has just made for us, and no other owns.
    unsafe {
        let fd = libc::CMSG_DATA(cmsg).cast::<RawFd>().read_unaligned();
        Some(OwnedFd::from_raw_fd(fd))
    }
}

/// Tells the front end that the configuration space has changed.
///
/// Never waits: a front end that does not read its channel loses the message.
pub fn config_changed(channel: &impl AsRawFd) -> io::Result<()> {
    let mut message = [0u8; HEADER];
    message[..4].copy_from_slice(&CONFIG_CHANGE.to_ne_bytes());
    message[4..8].copy_from_slice(&FLAGS.to_ne_bytes());
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    match send(channel.as_raw_fd(), &message, flags)? {
        HEADER => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::MetadataExt;
    use vmm_sys_util::sock_ctrl_msg::ScmSocket;

    #[test]
    fn takes_the_channel_and_leaves_the_message() {
        let (front, back) = UnixStream::pair().unwrap();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut header = [0u8; HEADER];
        header[0] = SET_BACKEND_REQ_FD as u8;
        front
            .send_with_fds(&[&header[..]], &[theirs.as_raw_fd()])
            .unwrap();
        drop(theirs);

        let peeked = peek(&back).unwrap();
        assert_eq!(peeked.request, SET_BACKEND_REQ_FD);
        config_changed(&peeked.channel.unwrap()).unwrap();
        let mut got = [0u8; HEADER];
        ours.read_exact(&mut got).unwrap();
        assert_eq!(got, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);

        let mut buf = [0u8; HEADER];
        let mut fds = [0; 1];
        // SAFETY: the vector describes `buf`.
        let (n, count) = unsafe {
            let mut iov = [libc::iovec {
                iov_base: buf.as_mut_ptr().cast(),
                iov_len: HEADER,
            }];
            back.recv_with_fds(&mut iov, &mut fds).unwrap()
        };
        assert_eq!((n, count, buf), (HEADER, 1, header));
        // SAFETY: just received, so ours to close.
        drop(unsafe { OwnedFd::from_raw_fd(fds[0]) });
    }

    /// How many of our descriptors are of this file.
    fn count(inode: u64) -> usize {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        fds.filter(|fd| std::fs::metadata(fd.path()).is_ok_and(|m| m.ino() == inode))
            .count()
    }

    #[test]
    fn takes_one_of_many_descriptors() {
        let (front, back) = UnixStream::pair().unwrap();
        let (theirs, _other) = UnixStream::pair().unwrap();
        let mut header = [0u8; HEADER];
        header[0] = SET_BACKEND_REQ_FD as u8;
        front
            .send_with_fds(&[&header[..]], &[theirs.as_raw_fd(); 5])
            .unwrap();
        let inode = std::fs::metadata(format!("/proc/self/fd/{}", theirs.as_raw_fd()))
            .unwrap()
            .ino();

        let before = count(inode);
        let peeked = peek(&back).unwrap();
        assert!(peeked.channel.is_some());
        assert_eq!(count(inode), before + 1);
        drop(peeked);
        assert_eq!(count(inode), before);
    }

    #[test]
    fn survives_short_and_wrong_messages() {
        let (mut front, back) = UnixStream::pair().unwrap();
        front.write_all(&[21, 0]).unwrap();
        assert_eq!(peek(&back).unwrap().request, 0);
        front.write_all(&[0; 10]).unwrap();
        let peeked = peek(&back).unwrap();
        assert!(peeked.channel.is_none());
        drop(front);
    }
}
