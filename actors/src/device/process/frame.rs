//! A message between a device and its process as bytes: four bytes of length, little-endian, and the message in bincode. Each side
//! begins with a greeting that names the protocol and its version.

use futures_util::Stream;
use futures_util::stream::try_unfold;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read};
use tokio::io::{AsyncRead, AsyncReadExt, BufReader};

/// What each side sends first. Its last byte is the version: raise it with any change of a message.
pub(super) const GREETING: &[u8; 8] = b"ropedev\x02";
/// Longest frame. The longest messages, a prompt or the log-probabilities of one, take a few bytes per token.
const FRAME_BYTES_MAX: usize = 256 << 20;
/// Bytes that a frame gets before they have come.
const ROOM: usize = 64 << 10;

/// Why the other side cannot be understood.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    /// It is another program, or another version of this one.
    #[error("greets with {0:x?}, not as a device of this version")]
    Greeting([u8; 8]),
    /// Longer than any message is.
    #[error("a frame of {0} bytes, more than any message has")]
    TooLong(usize),
    /// Not the message that was expected.
    #[error("a frame that cannot be read: {0}")]
    Decode(#[from] bincode::error::DecodeError),
    /// A message that cannot be written.
    #[error("a message that cannot be written: {0}")]
    Encode(#[from] bincode::error::EncodeError),
    /// The socket failed, or ended inside a frame.
    #[error("its socket: {0}")]
    Io(#[from] io::Error),
}

fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<FRAME_BYTES_MAX>()
}

/// A frame with that message.
pub(super) fn encode(message: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; 4];
    encode_into(message, &mut frame)?;
    Ok(frame)
}

/// The same into room that is used again.
pub(super) fn encode_into(message: &impl Serialize, frame: &mut Vec<u8>) -> Result<(), FrameError> {
    frame.clear();
    frame.extend([0; 4]);
    bincode::serde::encode_into_std_write(message, frame, config())?;
    let length = frame.len() - 4;
    if length > FRAME_BYTES_MAX {
        return Err(FrameError::TooLong(length));
    }
    frame[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(())
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    let (message, read) = bincode::serde::decode_from_slice(bytes, config())?;
    match read == bytes.len() {
        true => Ok(message),
        false => Err(FrameError::TooLong(bytes.len())),
    }
}

fn length(head: [u8; 4]) -> Result<usize, FrameError> {
    let length = u32::from_le_bytes(head) as usize;
    match length <= FRAME_BYTES_MAX {
        true => Ok(length),
        false => Err(FrameError::TooLong(length)),
    }
}

pub(super) fn check_greeting(greeting: [u8; 8]) -> Result<(), FrameError> {
    match greeting == *GREETING {
        true => Ok(()),
        false => Err(FrameError::Greeting(greeting)),
    }
}

/// Reads the other side's greeting.
pub(super) fn read_greeting(from: &mut impl Read) -> Result<(), FrameError> {
    let mut greeting = [0; 8];
    from.read_exact(&mut greeting)?;
    check_greeting(greeting)
}

/// Reads the next message; `None` when the other side has closed.
pub(super) fn read<T: DeserializeOwned>(from: &mut impl Read) -> Result<Option<T>, FrameError> {
    let mut head = [0; 4];
    if from.read(&mut head[..1])? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut head[1..])?;
    let length = length(head)?;
    // Grows with what comes, not with what is promised.
    let mut frame = Vec::with_capacity(length.min(ROOM));
    from.take(length as u64).read_to_end(&mut frame)?;
    match frame.len() == length {
        true => decode(&frame).map(Some),
        false => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
}

/// The same side of the wire without blocking.
pub(super) struct Frames<R> {
    from: BufReader<R>,
    frame: Vec<u8>,
    greeted: bool,
}

impl<R: AsyncRead + Unpin + 'static> Frames<R> {
    pub fn new(from: R) -> Self {
        Frames {
            from: BufReader::with_capacity(ROOM, from),
            frame: Vec::new(),
            greeted: false,
        }
    }

    /// The messages until the other side closes, or an error.
    pub fn into_stream<T: DeserializeOwned + 'static>(
        self,
    ) -> impl Stream<Item = Result<T, FrameError>> {
        try_unfold(self, |mut frames| async move {
            let message = frames.next().await?;
            Ok(message.map(|message| (message, frames)))
        })
    }

    async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        if !self.greeted {
            let mut greeting = [0; 8];
            if self.from.read(&mut greeting[..1]).await? == 0 {
                return Ok(None);
            }
            self.from.read_exact(&mut greeting[1..]).await?;
            check_greeting(greeting)?;
            self.greeted = true;
        }
        let mut head = [0; 4];
        if self.from.read(&mut head[..1]).await? == 0 {
            return Ok(None);
        }
        self.from.read_exact(&mut head[1..]).await?;
        let length = length(head)?;
        self.frame.clear();
        let mut rest = (&mut self.from).take(length as u64);
        rest.read_to_end(&mut self.frame).await?;
        match self.frame.len() == length {
            true => decode(&self.frame).map(Some),
            false => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::TryStreamExt;

    fn frame() -> Vec<u8> {
        encode(&vec!["some".to_owned(), "words".to_owned()]).expect("small")
    }

    async fn all(bytes: &[u8]) -> Result<Vec<Vec<String>>, FrameError> {
        let bytes = io::Cursor::new([GREETING.as_slice(), bytes].concat());
        Frames::new(bytes).into_stream().try_collect().await
    }

    #[tokio::test]
    async fn messages_come_as_they_were_sent() {
        let wire = [frame(), frame()].concat();
        let words = vec!["some".to_owned(), "words".to_owned()];
        assert_eq!(all(&wire).await.unwrap(), [words.clone(), words.clone()]);
        let mut wire = wire.as_slice();
        assert_eq!(read(&mut wire).unwrap(), Some(words.clone()));
        assert_eq!(read(&mut wire).unwrap(), Some(words));
        assert_eq!(read::<Vec<String>>(&mut wire).unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_cut_short_or_broken_is_an_error_and_never_a_message() {
        let whole = frame();
        for cut in 1..whole.len() {
            assert!(all(&whole[..cut]).await.is_err(), "{cut}");
            assert!(read::<Vec<String>>(&mut &whole[..cut]).is_err(), "{cut}");
        }
        for (at, byte) in [(3, 0xff), (4, 0xff), (0, 1)] {
            let mut broken = whole.clone();
            broken[at] = byte;
            assert!(read::<Vec<String>>(&mut broken.as_slice()).is_err(), "{at}");
            assert!(all(&broken).await.is_err(), "{at}");
        }
    }

    #[test]
    fn a_length_that_is_promised_gets_no_memory_before_it_comes() {
        let promised = (FRAME_BYTES_MAX as u32).to_le_bytes();
        assert!(read::<Vec<u8>>(&mut promised.as_slice()).is_err());
        let more = (FRAME_BYTES_MAX as u32 + 1).to_le_bytes();
        let error = read::<Vec<u8>>(&mut more.as_slice()).unwrap_err();
        assert!(matches!(error, FrameError::TooLong(_)), "{error}");
    }

    #[test]
    fn another_program_is_told_apart() {
        let mut other: &[u8] = b"HTTP/1.1 200 OK";
        assert!(matches!(
            read_greeting(&mut other),
            Err(FrameError::Greeting(_))
        ));
        assert!(read_greeting(&mut GREETING.as_slice()).is_ok());
    }
}
