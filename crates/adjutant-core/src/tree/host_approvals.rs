//! Hosts that the policy does not list: a person is asked about each of them once per run.
//!
//! `HostApproval` is the state of one such host: asked, allowed or denied.

use super::Tree;
use crate::command::Effect;
use crate::event::Event;
use crate::ids::SessionId;
use crate::message::ToolCall;
use crate::time::Timestamp;
use crate::web_host::{HostSet, WEB_FETCH, asked_host};

/// The approval state of a host that the policy does not list.
#[derive(Clone, Debug)]
pub(super) enum HostApproval {
    /// A person is being asked; these calls wait, each as node index and call number.
    Asked { expires: Timestamp, waiting: Vec<(usize, u32)> },
    /// It may be fetched from.
    Allowed,
    /// It may not be fetched from, for this reason.
    Denied(String),
}

impl Tree {
    /// Starts a permitted call, or asks a person first if it fetches from an unknown host.
    pub(super) fn run_or_ask(
        &self,
        now: Timestamp,
        session: SessionId,
        number: u32,
        call: &ToolCall,
    ) -> Event {
        if call.name != WEB_FETCH {
            return Event::ToolCalled { session, call: number };
        }
        let host = match asked_host(&call.arguments) {
            Ok((_, host)) => host,
            Err(problem) => {
                let text = format!("Not run: {problem}.");
                return Event::ToolRefused { session, call: number, text };
            }
        };
        if self.policy.web_domains.contains(&host) {
            return Event::ToolCalled { session, call: number };
        }
        let expires = now.plus_seconds(self.policy.approval_s);
        match self.domains.get(&host) {
            Some(HostApproval::Allowed) => Event::ToolCalled { session, call: number },
            Some(HostApproval::Denied(reason)) => {
                Event::ToolRefused { session, call: number, text: denial_text(&host, reason) }
            }
            Some(HostApproval::Asked { expires, .. }) => {
                Event::DomainAsked { session, call: number, host, expires: *expires }
            }
            None => Event::DomainAsked { session, call: number, host, expires },
        }
    }

    /// Allows a host for the rest of the run, even if the session that asked has ended.
    pub(super) fn allow_domain(&self, host: String) -> Vec<Event> {
        let Some(waiting) = self.asks_about(&host) else { return Vec::new() };
        let calls = waiting.iter().map(|(node, call)| Event::ToolCalled {
            session: self.nodes[*node].session,
            call: *call,
        });
        std::iter::once(Event::DomainAllowed { host }).chain(calls).collect()
    }

    /// Denies a host for the rest of the run.
    pub(super) fn deny_domain(&self, host: &str, reason: &str) -> Vec<Event> {
        let Some(waiting) = self.asks_about(host) else { return Vec::new() };
        let calls = waiting.iter().map(|(node, call)| Event::ToolRefused {
            session: self.nodes[*node].session,
            call: *call,
            text: denial_text(host, reason),
        });
        let fact = Event::DomainDenied { host: host.to_owned(), reason: reason.to_owned() };
        std::iter::once(fact).chain(calls).collect()
    }

    /// Returns the calls that wait for an answer about a host; `None` if the host was already
    /// decided.
    fn asks_about(&self, host: &str) -> Option<&[(usize, u32)]> {
        match self.domains.get(host) {
            _ if self.ended.is_some() => None,
            Some(HostApproval::Asked { waiting, .. }) => Some(waiting),
            Some(HostApproval::Allowed | HostApproval::Denied(_)) => None,
            None => Some(&[]),
        }
    }

    /// Says whether a person is being asked about `host`.
    #[must_use]
    pub fn awaits_domain(&self, host: &str) -> bool {
        matches!(self.domains.get(host), Some(HostApproval::Asked { .. }))
    }

    /// Says whether a call waits for an answer about its host.
    pub(super) fn is_held(&self, index: usize, call: u32) -> bool {
        let holds = |domain: &HostApproval| matches!(domain, HostApproval::Asked { waiting, .. } if waiting.contains(&(index, call)));
        self.domains.values().any(holds)
    }

    pub(super) fn expire_domains(&self, now: Timestamp) -> Vec<Event> {
        let due = self.domains.iter().filter(
            |(_, domain)| matches!(domain, HostApproval::Asked { expires, .. } if *expires <= now),
        );
        due.flat_map(|(host, _)| self.deny_domain(host, &self.nobody_answered())).collect()
    }

    /// Returns when the next question about a host expires.
    pub(super) fn next_stale_domain(&self) -> Option<Timestamp> {
        let expiry = |domain: &HostApproval| match domain {
            HostApproval::Asked { expires, .. } => Some(*expires),
            HostApproval::Allowed | HostApproval::Denied(_) => None,
        };
        self.domains.values().filter_map(expiry).min()
    }

    /// Records that a call waits for an answer about its host.
    pub(super) fn domain_asked(&mut self, index: usize, call: u32, host: &str, expires: Timestamp) {
        let fresh = || HostApproval::Asked { expires, waiting: Vec::new() };
        match self.domains.entry(host.to_owned()).or_insert_with(fresh) {
            HostApproval::Asked { waiting, .. } => waiting.push((index, call)),
            // After content expiry all hosts have the same name, so an answer may already be there.
            HostApproval::Allowed | HostApproval::Denied(_) => {}
        }
    }

    /// Removes one waiting call, and the question if no other call waits.
    pub(super) fn let_go(&mut self, index: usize, call: u32) {
        self.domains.retain(|_, domain| match domain {
            HostApproval::Asked { waiting, .. } => {
                waiting.retain(|held| *held != (index, call));
                !waiting.is_empty()
            }
            HostApproval::Allowed | HostApproval::Denied(_) => true,
        });
    }

    /// Returns how many questions about hosts are open.
    pub(super) fn open_domains(&self) -> usize {
        self.domains.values().filter(|domain| matches!(domain, HostApproval::Asked { .. })).count()
    }

    /// Removes the waiting calls of an ended node, and the questions that no other call waits for.
    pub(super) fn forget_fetches(&mut self, index: usize) {
        self.domains.retain(|_, domain| match domain {
            HostApproval::Asked { waiting, .. } => {
                waiting.retain(|(node, _)| *node != index);
                !waiting.is_empty()
            }
            HostApproval::Allowed | HostApproval::Denied(_) => true,
        });
    }

    /// Returns the open questions about hosts. Each is asked once, for the first call that needs
    /// the host.
    pub(super) fn open_domain_questions(&self) -> impl Iterator<Item = Effect> {
        self.domains.iter().filter_map(|(host, domain)| {
            let HostApproval::Asked { waiting, .. } = domain else { return None };
            let (index, call) = waiting.first()?;
            let node = &self.nodes[*index];
            let wanted = node.open_call(*call);
            let url = wanted.and_then(|call| asked_host(&call.arguments).ok());
            let url = url.map(|(url, _)| url.to_owned()).unwrap_or_default();
            Some(Effect::AskDomain { session: node.session, host: host.clone(), url })
        })
    }

    /// Extends open questions about hosts to `until`, and forgets denials: they may have been
    /// expiries while no person was there.
    pub(super) fn renew_domain_questions(&mut self, until: Timestamp) {
        self.domains.retain(|_, domain| !matches!(domain, HostApproval::Denied(_)));
        for domain in self.domains.values_mut() {
            if let HostApproval::Asked { expires, .. } = domain {
                *expires = until;
            }
        }
    }

    /// Returns the effect of a permitted fetch; redirects may go to all allowed hosts.
    pub(super) fn fetch(
        &self,
        session: SessionId,
        turn: u32,
        index: u32,
        call: ToolCall,
    ) -> Option<Effect> {
        let (_, host) = asked_host(&call.arguments).ok()?;
        Some(Effect::Fetch { session, turn, index, call, host, hosts: self.allowed_hosts() })
    }

    fn allowed_hosts(&self) -> HostSet {
        let mut hosts = self.policy.web_domains.clone();
        for (host, domain) in &self.domains {
            if matches!(domain, HostApproval::Allowed) {
                hosts.insert(host);
            }
        }
        hosts
    }
}

fn denial_text(host: &str, reason: &str) -> String {
    format!(
        "Not fetched: {host} was not allowed ({reason}). Do without it, and do not try it again."
    )
}
