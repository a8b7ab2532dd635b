//! An echo server and its clients on a runtime with several threads, so that stacks of tasks,
//! timers, the poll loop and blocking threads can be taken.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Mutex, mpsc};

async fn answer(mut stream: TcpStream) {
    let mut room = [0; 256];
    while let Ok(length @ 1..) = stream.read(&mut room).await {
        if stream.write_all(&room[..length]).await.is_err() {
            return;
        }
    }
}

async fn ask(address: std::net::SocketAddr) {
    let Ok(mut stream) = TcpStream::connect(address).await else { return };
    let mut room = [0; 256];
    for round in 0u64.. {
        let text = format!("round {round}");
        if stream.write_all(text.as_bytes()).await.is_err() || stream.read(&mut room).await.is_err() {
            return;
        }
        if round % 64 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn calculate(depth: u32) -> u64 {
    match depth {
        0 => 1,
        _ => {
            let mut sorted: BTreeMap<String, u64> = BTreeMap::new();
            for number in 0..20u64 {
                sorted.insert(format!("{}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)), calculate(depth - 1));
            }
            sorted.values().sum()
        }
    }
}

async fn turns(shared: std::sync::Arc<Mutex<u64>>) {
    loop {
        *shared.lock().await += calculate(2);
        tokio::task::yield_now().await;
    }
}

#[tokio::main(worker_threads = 3)]
async fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shared = std::sync::Arc::new(Mutex::new(0));
    for _ in 0..4 {
        tokio::spawn(ask(address));
        tokio::spawn(turns(shared.clone()));
    }
    tokio::task::spawn_blocking(|| {
        loop {
            std::hint::black_box(calculate(3));
        }
    });
    let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(8);
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    tokio::spawn(async move {
        while let Some(bytes) = receiver.recv().await {
            let _ = socket.send_to(&bytes, "127.0.0.1:9").await;
        }
    });
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_micros(500)).await;
            let _ = sender.send(vec![0; 64]).await;
        }
    });
    println!("ready");
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    }
}
