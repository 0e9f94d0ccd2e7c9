//! Steps that wait until a test allows them.

use std::collections::VecDeque;

use tokio::sync::oneshot;

/// Which steps may be computed; all of them, unless they are held.
#[derive(Default)]
pub(in crate::engine::native) struct Steps {
    held: bool,
    /// Whom to tell of each step that was allowed.
    allowed: VecDeque<oneshot::Sender<()>>,
}

impl Steps {
    pub(in crate::engine::native) fn hold(&mut self) {
        self.held = true;
    }

    /// Lets all steps be computed again, and forgets those that were allowed one by one.
    pub(in crate::engine::native) fn release(&mut self) {
        *self = Self::default();
    }

    pub(in crate::engine::native) fn allow(&mut self, computed: oneshot::Sender<()>) {
        self.allowed.push_back(computed);
    }

    /// Whether steps are allowed one by one.
    pub(super) fn are_held(&self) -> bool {
        self.held
    }

    /// Whether the next step waits.
    pub(super) fn wait(&self) -> bool {
        self.held && self.allowed.is_empty()
    }

    /// A step was computed.
    pub(super) fn computed(&mut self) {
        if let Some(computed) = self.allowed.pop_front() {
            // Whoever allowed the step may have gone.
            let _ = computed.send(());
        }
    }
}
