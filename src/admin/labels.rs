//! Names that clients give: they stand in answers, logs and metrics.

use super::AdminError;

/// Characters of the longest label.
const MOST_OF_A_LABEL: usize = 256;

/// Refuses a name for weights that is none.
pub(super) fn check_weight_name(place: &str, label: Option<&str>) -> Result<(), AdminError> {
    if label == Some("") {
        let name = place.rsplit('.').next().unwrap_or(place);
        return Err(AdminError::field(
            place,
            format!("`{name}` is empty: leave it out, or call the weights something"),
        ));
    }
    check_label(place, label)
}

/// Refuses a label that would break a line, or fill a page; `place` is where it stands.
pub(super) fn check_label(place: &str, label: Option<&str>) -> Result<(), AdminError> {
    let label = label.unwrap_or_default();
    let name = place.rsplit('.').next().unwrap_or(place);
    if label.chars().any(char::is_control) {
        return Err(AdminError::field(place, format!("`{name}` has control characters")));
    }
    if label.chars().nth(MOST_OF_A_LABEL).is_some() {
        return Err(AdminError::field(place, format!("`{name}` has more than {MOST_OF_A_LABEL} characters")));
    }
    Ok(())
}
