//! A connection that may say only so much until its peer has enrolled.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use worker_protocol::MAX_HELLO_BYTES;

/// Bytes of a Hello and of the WebSocket handshake before it.
pub(super) const BEFORE_ENROLMENT_BYTES: usize = MAX_HELLO_BYTES + (32 << 10);

/// Counts what is read. One read may go beyond the limit by its own buffer; the next fails.
pub(super) struct Metered<S> {
    inner: S,
    left: Option<usize>,
}

impl<S> Metered<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, left: Some(BEFORE_ENROLMENT_BYTES) }
    }

    /// The peer has enrolled: the limits of its messages are enough.
    pub(super) fn lift(&mut self) {
        self.left = None;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.left == Some(0) {
            let error = format!("more than {BEFORE_ENROLMENT_BYTES} bytes before it enrolled");
            return Poll::Ready(Err(io::Error::other(error)));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let read = buf.filled().len() - before;
        self.left = self.left.map(|left| left.saturating_sub(read));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
