//! Answers the effect that collects a handover, as a runtime does.

use adjutant_core::{CollectedHandover, Command, Conversation, Effect, SessionId};

use crate::sim::Sim;

/// Returns the conversation of a session, as its model sees it.
pub(crate) fn conversation(sim: &Sim, session: SessionId) -> Conversation {
    let mut conversation = Conversation::default();
    let events = sim.log.iter().map(|(_, event)| event);
    for event in events.filter(|event| event.conversation() == Some(session)) {
        conversation.apply(event);
    }
    conversation
}

/// Answers every due handover with a diff of this size; returns whether there was any.
pub(crate) fn hand_over(sim: &mut Sim, diff_bytes: usize) -> bool {
    let mut any = false;
    for effect in sim.tree.all_due().effects {
        let Effect::CollectHandover { session, turn, has_note, .. } = effect else { continue };
        any = true;
        let talk = conversation(sim, session);
        let last_text = talk.last_words().unwrap_or_default().to_owned();
        let handover = CollectedHandover {
            brief: talk.brief(),
            note: has_note.then(|| last_text.clone()),
            scratchpad: talk.scratchpad().to_vec(),
            last_text,
            files: ["src/a.rs".to_owned()].into(),
            diff: "+x\n".repeat(diff_bytes / 3),
            is_diff_cut: false,
        };
        let handover = Box::new(handover);
        sim.submit(Command::TakeHandover { session, turn, handover }).unwrap();
    }
    any
}
