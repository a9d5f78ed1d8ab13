//! A million connections opened and closed, and a million SYNs of a flood, in virtual time; what they
//! cost in real time and memory. `cargo run --release -p multidata-stack --example soak`.

#[path = "../tests/scale/mod.rs"]
mod scale;

fn main() {
    let began = std::time::Instant::now();
    let churn = scale::churn(1_000_000);
    println!("{churn:#?}\n{:?} in real time", began.elapsed());
    let began = std::time::Instant::now();
    let flood = scale::flood(1_000_000);
    println!("{flood:#?}\n{:?} in real time", began.elapsed());
}
