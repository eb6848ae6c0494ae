//! Sends the bytes of an answer: in which pieces, how slowly, and where the script cuts it off.

use std::time::Duration;

use super::http::{Link, Reply};
use super::log::Delivered;
use super::turn::Delivery;

/// Sends an answer of one piece.
pub(super) async fn send(link: &mut Link, reply: &Reply, delivery: &Delivery) -> Delivered {
    if delivery.hang_up {
        return Delivered::Cut;
    }
    link.write(&reply.bytes());
    if link.flush().await.is_err() { Delivered::Left } else { Delivered::Whole }
}

/// Waits before an answer.
pub(super) async fn wait(link: &mut Link, ms: u64) -> Result<(), Delivered> {
    if ms == 0 {
        return Ok(());
    }
    link.pause(Some(Duration::from_millis(ms))).await.map_err(|_| Delivered::Left)
}

/// Sends the events of a stream behind its head.
pub(super) async fn stream(
    link: &mut Link,
    head: &str,
    events: &[String],
    delivery: &Delivery,
) -> Delivered {
    if delivery.hang_up {
        return Delivered::Cut;
    }
    link.write(head.as_bytes());
    match pieces(link, events, delivery).await {
        Ok(delivered) => delivered,
        Err(delivered) => delivered,
    }
}

async fn pieces(
    link: &mut Link,
    events: &[String],
    delivery: &Delivery,
) -> Result<Delivered, Delivered> {
    let (body, sizes) = layout(events, delivery);
    let cut = delivery.cut_after.filter(|end| *end < body.len());
    let stall = delivery.stall_after.filter(|end| *end < body.len());
    let end = cut.or(stall).unwrap_or(body.len());
    let dripping = !delivery.chunks.is_empty();
    let pause_ms = if dripping { delivery.chunk_delay_ms } else { delivery.event_delay_ms };
    let mut at = 0;
    for size in sizes {
        let next = (at + size).min(end);
        if at == next {
            continue;
        }
        if at > 0 && pause_ms > 0 {
            flush(link).await?;
            wait(link, pause_ms).await?;
        }
        link.chunk(&body[at..next]);
        at = next;
        if dripping {
            flush(link).await?;
            // Lets a client in the same runtime see this piece alone.
            tokio::task::yield_now().await;
        }
    }
    if cut.is_none() && stall.is_some() {
        flush(link).await?;
        return link.pause(None).await.map(|()| Delivered::Left).map_err(|_| Delivered::Left);
    }
    let torn = cut.is_some() && !delivery.cut_cleanly;
    if !torn {
        link.write(b"0\r\n\r\n");
    }
    flush(link).await?;
    Ok(if torn { Delivered::Cut } else { Delivered::Whole })
}

/// Returns the body and the sizes of its pieces.
fn layout(events: &[String], delivery: &Delivery) -> (Vec<u8>, Vec<usize>) {
    let mut body: Vec<u8> = events.iter().flat_map(|event| event.bytes()).collect();
    let mut sizes: Vec<usize> = events.iter().map(String::len).collect();
    if let Some(garbage) = &delivery.garbage {
        let at = garbage.at.min(body.len());
        body.splice(at..at, garbage.bytes.iter().copied());
        sizes.push(garbage.bytes.len());
    }
    let wanted: Vec<usize> = delivery.chunks.iter().copied().filter(|size| *size > 0).collect();
    if !wanted.is_empty() {
        let mut left = body.len();
        sizes.clear();
        for size in wanted.iter().cycle() {
            if left == 0 {
                break;
            }
            sizes.push(left.min(*size));
            left = left.saturating_sub(*size);
        }
    }
    (body, sizes)
}

async fn flush(link: &mut Link) -> Result<(), Delivered> {
    link.flush().await.map_err(|_| Delivered::Left)
}
