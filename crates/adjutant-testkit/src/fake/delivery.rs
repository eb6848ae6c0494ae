//! Sends the bytes of an answer: in which pieces, how slowly, and where the script cuts it off.

use std::time::Duration;

use super::http::{Connection, Reply};
use super::log::DeliveryOutcome;
use super::turn::Delivery;

/// Sends an answer of one piece.
pub(super) async fn send(
    client: &mut Connection,
    reply: &Reply,
    delivery: &Delivery,
) -> DeliveryOutcome {
    if delivery.hang_up {
        return DeliveryOutcome::Cut;
    }
    client.write(&reply.bytes());
    if client.flush().await.is_err() { DeliveryOutcome::Left } else { DeliveryOutcome::Whole }
}

/// Waits before an answer.
pub(super) async fn wait(client: &mut Connection, ms: u64) -> Result<(), DeliveryOutcome> {
    if ms == 0 {
        return Ok(());
    }
    client.pause(Some(Duration::from_millis(ms))).await.map_err(|_| DeliveryOutcome::Left)
}

/// Sends the events of a stream behind its head.
pub(super) async fn stream(
    client: &mut Connection,
    head: &str,
    events: &[String],
    delivery: &Delivery,
) -> DeliveryOutcome {
    if delivery.hang_up {
        return DeliveryOutcome::Cut;
    }
    client.write(head.as_bytes());
    match pieces(client, events, delivery).await {
        Ok(delivered) => delivered,
        Err(delivered) => delivered,
    }
}

async fn pieces(
    client: &mut Connection,
    events: &[String],
    delivery: &Delivery,
) -> Result<DeliveryOutcome, DeliveryOutcome> {
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
            flush(client).await?;
            wait(client, pause_ms).await?;
        }
        client.chunk(&body[at..next]);
        at = next;
        if dripping {
            flush(client).await?;
            // Lets a client in the same runtime see this piece alone.
            tokio::task::yield_now().await;
        }
    }
    if cut.is_none() && stall.is_some() {
        flush(client).await?;
        return client
            .pause(None)
            .await
            .map(|()| DeliveryOutcome::Left)
            .map_err(|_| DeliveryOutcome::Left);
    }
    let torn = cut.is_some() && !delivery.cut_cleanly;
    if !torn {
        client.write(b"0\r\n\r\n");
    }
    flush(client).await?;
    Ok(if torn { DeliveryOutcome::Cut } else { DeliveryOutcome::Whole })
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

async fn flush(client: &mut Connection) -> Result<(), DeliveryOutcome> {
    client.flush().await.map_err(|_| DeliveryOutcome::Left)
}
