//! Threads of squeues are kept where the stack says they are.

mod pair;

use multidata::{TcpListener, TcpStream};
use pair::right;
use std::fs;

/// The CPUs that each thread of this process with such a name may use.
fn affinities(name: &str) -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("/proc is mounted");
    let of = |task: &fs::DirEntry| {
        let comm = fs::read_to_string(task.path().join("comm")).ok()?;
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        (comm.trim() == name).then(|| list.trim().to_owned())
    };
    tasks.filter_map(|task| of(&task.ok()?)).collect()
}

#[test]
fn each_squeue_has_a_cpu_and_its_connections_say_which() {
    let cpus = linux::cpu::allowed().expect("an answer");
    let (left, right_stack) = pair::pair_with(|builder| builder.squeues(2).pin(true));
    for (index, name) in ["squeue-0", "squeue-1"].into_iter().enumerate() {
        let cpu = cpus[index % cpus.len()];
        assert_eq!(left.squeue_cpu(index), Some(cpu));
        // One thread of each stack.
        assert_eq!(affinities(name), [cpu.to_string(), cpu.to_string()], "{name}");
    }
    assert_eq!(left.squeue_cpu(2), None);
    let listener = TcpListener::bind(&right_stack, right(80)).expect("a free port");
    for _ in 0..8 {
        let client = TcpStream::connect(&left, right(80)).expect("it listens");
        let (server, _) = listener.accept().expect("a connection");
        assert_eq!(client.cpu(), left.squeue_cpu(client.squeue()));
        let cpu = server.cpu().expect("its squeue is pinned");
        // A thread that goes there opens its own connections there.
        let opened = std::thread::scope(|scope| {
            let open = || {
                linux::cpu::pin(&[cpu]).expect("the stack may run there, too");
                TcpStream::connect(&right_stack, right(80)).expect("it listens").cpu()
            };
            scope.spawn(open).join().expect("no panic")
        });
        drop(listener.accept().expect("its other end"));
        assert_eq!(opened, Some(cpu));
    }
    drop((left, right_stack, listener));
    let (left, _right_stack) = pair::pair();
    assert_eq!(left.squeue_cpu(0), None);
}
