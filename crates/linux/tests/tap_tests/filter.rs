//! A filter of system calls for one thread, such as containers have for all of theirs.

#![allow(unsafe_code)]

/// From now on io_uring_setup(2) says ENOSYS to this thread and those that it starts.
pub(crate) fn forbid_io_uring() -> std::io::Result<()> {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    // `struct seccomp_data` begins with the number of the call.
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            libc::SYS_io_uring_setup as u32,
        ),
        instruction(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
        ),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let whole = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: numbers.
    let given_up = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if given_up != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel copies the program, which outlives the call.
    let filtered = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            core::ptr::from_ref(&whole),
        )
    };
    if filtered == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
