//! Images in requests.

use std::{net::Ipv6Addr, path::PathBuf};

use clap::Args;
use reqwest::Url;
use serde_json::{Map, Value};

use super::number::human_readable_count;

/// Which images requests may have, and how they become what the model sees.
#[derive(Debug, Args)]
#[command(next_help_heading = "Images")]
pub struct ImageArgs {
    /// The most images of one prompt, as JSON or `image=N` [default: 999]
    ///
    /// As `{"image": 4}` or `{"image": {"count": 4}}`. Other kinds of media are refused anyway.
    #[arg(long, value_name = "JSON", value_parser = images_per_prompt)]
    pub limit_mm_per_prompt: Option<ImagesPerPrompt>,

    /// Refuse images, and serve the model as a text model.
    #[arg(long)]
    pub language_model_only: bool,

    /// Read `file:` URLs of images below this directory [default: refuse them]
    ///
    /// Every client of the server can then show these files to the model.
    #[arg(long, value_name = "DIR")]
    pub allowed_local_media_path: Option<PathBuf>,

    /// Fetch images of `http:` and `https:` URLs from these hosts [default: refuse them]
    ///
    /// Names must have public addresses. A host of the own network is allowed by its address.
    #[arg(long, value_name = "HOST", num_args = 1.., value_parser = media_domain)]
    pub allowed_media_domains: Vec<String>,

    /// How many seconds a host has for an image.
    #[arg(long, env = "VLLM_IMAGE_FETCH_TIMEOUT", hide = true, default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub image_fetch_timeout: u64,

    /// Whether hosts may send the question for an image elsewhere.
    #[arg(long, hide = true, value_name = "0|1", env = "VLLM_MEDIA_URL_ALLOW_REDIRECTS")]
    pub media_url_allow_redirects: Option<i64>,

    /// Room for images that were made ready for the model, in GiB [default: 1]
    ///
    /// Clients send all images of a conversation with every turn.
    #[arg(long, value_name = "GIB", value_parser = gibibytes, default_value = "1", hide_default_value = true)]
    pub mm_processor_cache_gb: CacheBytes,

    /// Settings for the image processor of the model, as JSON.
    ///
    /// `min_pixels` and `max_pixels`, or `size` as in `preprocessor_config.json`; `min_patches` and `max_patches` where images are
    /// cut. They change how many tokens an image takes.
    #[arg(long, value_name = "JSON", value_parser = processor_settings)]
    pub mm_processor_kwargs: Option<ProcessorSettings>,
}

/// The most images of one prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImagesPerPrompt(pub usize);

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheBytes(pub u64);

/// Settings that take the place of those in `preprocessor_config.json`: those of [`SERVED`] and what `size` has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorSettings(pub Map<String, Value>);

/// What may be set besides `size`.
const SERVED: [&str; 4] = ["min_pixels", "max_pixels", "min_patches", "max_patches"];

impl Default for ImagesPerPrompt {
    /// vLLM's.
    fn default() -> Self {
        Self(999)
    }
}

fn images_per_prompt(text: &str) -> Result<ImagesPerPrompt, String> {
    if let Some(count) = text.strip_prefix("image=") {
        return human_readable_count(count).map(ImagesPerPrompt);
    }
    let Value::Object(limits) = serde_json::from_str(text).map_err(|error| error.to_string())? else {
        return Err("it is no JSON object such as {\"image\": 4}".to_owned());
    };
    let Some(limit) = limits.get("image") else { return Ok(ImagesPerPrompt::default()) };
    let count = if limit.is_object() { limit.get("count") } else { Some(limit) };
    let Some(count) = count else { return Ok(ImagesPerPrompt::default()) };
    let wrong = || format!("the number of images is {count}, and not a whole number from 0 on");
    usize::try_from(count.as_u64().ok_or_else(wrong)?).map(ImagesPerPrompt).map_err(|_| wrong())
}

/// A host as it stands in URLs that were parsed.
fn media_domain(text: &str) -> Result<String, String> {
    let host = if text.parse::<Ipv6Addr>().is_ok() { format!("[{text}]") } else { text.to_owned() };
    let url = Url::parse(&format!("http://{host}/")).map_err(|error| error.to_string())?;
    let parsed = url.host_str().unwrap_or_default().to_owned();
    let is_host = !parsed.contains('*') && url.as_str() == format!("http://{parsed}/");
    // What a URL parser would make something else of: ports, paths, users; only the case may change.
    if !is_host || !parsed.eq_ignore_ascii_case(&host) {
        let as_parsed = if is_host { format!("; it could be `{parsed}`") } else { String::new() };
        return Err(format!("it is not the host of a URL, such as `images.example.org` or `10.0.0.1`{as_parsed}"));
    }
    Ok(parsed)
}

fn gibibytes(text: &str) -> Result<CacheBytes, String> {
    const MOST: f64 = 1e6;
    let number: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    if !(0.0..=MOST).contains(&number) {
        return Err(format!("it is not between 0 and {MOST}"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 2^50")]
    Ok(CacheBytes((number * f64::from(1 << 30)) as u64))
}

fn processor_settings(text: &str) -> Result<ProcessorSettings, String> {
    let Value::Object(mut settings) = serde_json::from_str(text).map_err(|error| error.to_string())? else {
        return Err("it is no JSON object".to_owned());
    };
    let size = match settings.remove("size") {
        None => Map::new(),
        Some(Value::Object(size)) => size,
        Some(_) => return Err("`size` is no JSON object".to_owned()),
    };
    if let Some(unknown) = settings.keys().find(|key| !SERVED.contains(&key.as_str())) {
        return Err(format!("`{unknown}` is not served; `{}` and `size` are", SERVED.join("`, `")));
    }
    let mut all = size.iter().chain(&settings);
    if let Some((name, value)) = all.find(|(_, value)| value.as_u64().is_none_or(|pixels| pixels == 0)) {
        return Err(format!("`{name}` is {value}, and not a whole number over 0"));
    }
    settings.extend((!size.is_empty()).then(|| ("size".to_owned(), Value::Object(size))));
    Ok(ProcessorSettings(settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_vllm_writes_them() {
        let limit = |text| images_per_prompt(text).map(|limit| limit.0);
        for (text, count) in [
            ("{\"image\": 4}", 4),
            ("{\"image\": {\"count\": 2, \"width\": 512}}", 2),
            ("{\"video\": 0}", 999),
            ("{\"image\": {\"width\": 512}}", 999),
            ("image=3", 3),
            ("{\"image\": 0}", 0),
        ] {
            assert_eq!(limit(text), Ok(count), "{text}");
        }
        for wrong in ["4", "{\"image\": -1}", "{\"image\": 1.5}", "image=x", "{"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn settings_of_the_processor_that_are_not_served_are_refused() {
        let settings = |text| processor_settings(text).map(|settings| Value::Object(settings.0));
        for (text, size) in [
            ("{\"min_pixels\": 4, \"max_pixels\": 9}", None),
            ("{\"min_pixels\": 4, \"size\": {\"longest_edge\": 9}}", Some(9)),
            ("{\"size\": {\"longest_edge\": 7}}", Some(7)),
            ("{\"min_patches\": 1, \"max_patches\": 6}", None),
        ] {
            let read = settings(text).unwrap();
            assert_eq!(read.pointer("/size/longest_edge").and_then(Value::as_u64), size, "{text}");
            assert_eq!(read.get("min_pixels").is_some(), text.contains("min_pixels"), "{text}");
        }
        for wrong in [
            "{\"num_crops\": 4}",
            "{\"max_patches\": 0}",
            "{\"max_pixels\": \"9\"}",
            "{\"max_pixels\": 0}",
            "[]",
            "{\"size\": 4}",
        ] {
            assert!(settings(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn domains_are_hosts_without_wildcards() {
        for (text, host) in [
            ("example.org", "example.org"),
            ("Images.Example.ORG", "images.example.org"),
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "[::1]"),
            ("[2001:DB8::1]", "[2001:db8::1]"),
        ] {
            assert_eq!(media_domain(text).as_deref(), Ok(host), "{text}");
        }
        for wrong in [
            "",
            "*",
            "*.example.org",
            "example.org:80",
            "example.org/a",
            "user@example.org",
            "http://a",
            "a b",
            "0x7f.1",
            "127.1",
        ] {
            assert!(media_domain(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_cache_may_have_a_part_of_a_gibibyte() {
        assert_eq!(gibibytes("0.5"), Ok(CacheBytes(1 << 29)));
        assert_eq!(gibibytes("0"), Ok(CacheBytes(0)));
        for wrong in ["-1", "nan", "inf", "1e7", "4G"] {
            assert!(gibibytes(wrong).is_err(), "{wrong}");
        }
    }
}
