//! A TCP door whose other side can be changed or shut: for cut or forgotten connections and moved
//! clusters.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Default)]
struct State {
    target: String,
    open: Vec<TcpStream>,
    /// Set for the connections of `open` when they are to say nothing more.
    silent: Arc<AtomicBool>,
}

/// Passes connections on to wherever it leads now. It stands for the bootstrap address; a broker's
/// own advertised address goes around it unless that is the door's.
pub struct Door {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Door {
    /// A door to `target` (`HOST:PORT`).
    #[must_use]
    pub fn open(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free loopback port");
        let address = listener.local_addr().expect("a bound address");
        let state = State { target: target.to_owned(), ..State::default() };
        let state = Arc::new(Mutex::new(state));
        let theirs = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                pass(&stream, &theirs);
            }
        });
        Self { address, state }
    }

    /// The door's own address.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Cuts what is open and leads elsewhere from now on.
    pub fn lead_to(&self, target: &str) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).target = target.to_owned();
        self.cut();
    }

    /// Forgets every open connection as a middlebox does: what is sent on one goes nowhere, and
    /// neither side hears of it. New ones pass.
    pub fn silence(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.silent).store(true, Ordering::Release);
    }

    /// Cuts every open connection; new ones pass.
    pub fn cut(&self) {
        for stream in self.state.lock().unwrap_or_else(PoisonError::into_inner).open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn pass(near: &TcpStream, state: &Mutex<State>) {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(far) = TcpStream::connect(&state.target) else {
        let _ = near.shutdown(Shutdown::Both);
        return;
    };
    for (from, to) in [(near, &far), (&far, near)] {
        let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { return };
        let silent = Arc::clone(&state.silent);
        std::thread::spawn(move || copy(from, to, &silent));
    }
    if let Ok(near) = near.try_clone() {
        state.open.push(near);
    }
    state.open.push(far);
}

fn copy(mut from: TcpStream, mut to: TcpStream, silent: &AtomicBool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if silent.load(Ordering::Acquire) {
            continue;
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    // The other side of a forgotten connection does not hear of its end either.
    if !silent.load(Ordering::Acquire) {
        let _ = to.shutdown(Shutdown::Both);
    }
}
