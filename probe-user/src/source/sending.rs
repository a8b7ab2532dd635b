//! A recording on its way to whoever joins it, from a run that must not wait for that.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Bytes that may wait for a slow receiver; beyond it, sending ends.
const MOST_WAITING: usize = 16 << 20;
/// How often the end of the sending thread is looked for.
const POLL: Duration = Duration::from_millis(2);

/// A writer whose writes never wait: a thread of its own hands them on. What it cannot hand on, and
/// what is too much to keep, ends it; a recording with a hole would be worse than one that is cut.
#[derive(Debug)]
pub struct Sending {
    parts: Option<Sender<Vec<u8>>>,
    waiting: Arc<AtomicUsize>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Sending {
    /// Hands on to `to`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(to: Box<dyn Write + Send>) -> io::Result<Self> {
        let (parts, received) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        let thread = Builder::new().name("sending".to_owned()).spawn(move || hand_on(&received, &left, to))?;
        Ok(Self { parts: Some(parts), waiting, thread: Some(thread) })
    }

    /// Waits until all is handed on, but not beyond `deadline`.
    ///
    /// # Errors
    /// Why it is not.
    pub fn finish(mut self, deadline: Instant) -> io::Result<()> {
        self.parts = None;
        let Some(thread) = self.thread.take() else { return Ok(()) };
        while !thread.is_finished() {
            if Instant::now() >= deadline {
                return Err(too_slow());
            }
            std::thread::sleep(POLL);
        }
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the sending thread has failed")))
    }

    /// Why the thread has ended.
    fn failure(&mut self) -> io::Error {
        self.parts = None;
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(Err(error))) => error,
            _ => io::ErrorKind::BrokenPipe.into(),
        }
    }
}

impl Write for Sending {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        let Some(parts) = &self.parts else { return Err(io::ErrorKind::BrokenPipe.into()) };
        if self.waiting.fetch_add(part.len(), Ordering::Relaxed) > MOST_WAITING {
            self.parts = None;
            return Err(too_slow());
        }
        match parts.send(part.to_vec()) {
            Ok(()) => Ok(part.len()),
            Err(_) => Err(self.failure()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the receiver is too slow")
}

fn hand_on(parts: &Receiver<Vec<u8>>, waiting: &AtomicUsize, mut to: Box<dyn Write + Send>) -> io::Result<()> {
    for part in parts {
        to.write_all(&part)?;
        waiting.fetch_sub(part.len(), Ordering::Relaxed);
    }
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::{MOST_WAITING, Sending};
    use std::io::{self, ErrorKind, Write};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::{Duration, Instant};

    /// Takes a part for each permit.
    struct Slow(Receiver<()>, Sender<usize>);

    impl Write for Slow {
        fn write(&mut self, part: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(|_| ErrorKind::ConnectionReset)?;
            self.1.send(part.len()).map_err(io::Error::other)?;
            Ok(part.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_is_handed_on() {
        let ((permit, permits), (told, parts)) = (channel(), channel());
        let mut sending = Sending::start(Box::new(Slow(permits, told))).unwrap();
        (0..3).for_each(|_| permit.send(()).unwrap());
        (1..=3).for_each(|len| sending.write_all(&vec![0; len]).unwrap());
        sending.finish(Instant::now() + Duration::from_secs(10)).unwrap();
        assert_eq!(parts.iter().sum::<usize>(), 6);
    }

    #[test]
    fn a_receiver_that_does_not_receive_costs_bounded_memory_and_no_time() {
        let ((_permit, permits), (told, _parts)) = (channel(), channel());
        let mut sending = Sending::start(Box::new(Slow(permits, told))).unwrap();
        let part = vec![0; 1 << 20];
        let start = Instant::now();
        let parts = (0..).take_while(|_| sending.write_all(&part).is_ok()).count();
        assert!(parts << 20 <= MOST_WAITING + (2 << 20), "{parts} MiB");
        assert_eq!(sending.write(&part).unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert!(sending.finish(Instant::now()).is_err());
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_receiver_that_goes_is_told() {
        let ((permit, permits), (told, _parts)) = (channel(), channel());
        drop(permit);
        let mut sending = Sending::start(Box::new(Slow(permits, told))).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let failed = loop {
            assert!(Instant::now() < deadline);
            if let Err(error) = sending.write(b"half") {
                break error;
            }
        };
        assert_eq!(failed.kind(), ErrorKind::ConnectionReset);
    }
}
