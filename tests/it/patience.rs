//! Waiting for what does not tell when it happens.

use std::time::Duration;

/// How long anything is waited for before the test fails: a bound for what never comes, which no machine is too slow for.
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);

/// Between two looks, so that waiting takes no processor from what is waited for.
const PAUSE: Duration = Duration::from_millis(1);

/// Waits until `condition` holds. The only place where a test may sleep: whatever can tell is waited for itself.
pub(crate) async fn until(what: &str, condition: impl AsyncFnMut() -> bool) {
    within(PATIENCE, condition).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"));
}

async fn within(bound: Duration, mut condition: impl AsyncFnMut() -> bool) -> Result<(), tokio::time::error::Elapsed> {
    let look = async {
        while !condition().await {
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(bound, look).await
}

#[tokio::test]
async fn what_never_comes_is_not_waited_for_forever() {
    assert!(within(Duration::ZERO, async || false).await.is_err());
    let mut looks = 0;
    let third = within(PATIENCE, async || {
        looks += 1;
        looks == 3
    });
    assert!(third.await.is_ok());
}
