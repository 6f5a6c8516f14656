//! Frames that no honest client sends.

use bytes::BufMut;
use proptest::prelude::*;

use super::super::dispatch::COLD_APIS;
use super::*;

#[tokio::test]
async fn unknown_apis_and_versions_and_cut_bodies_close_the_connection() {
    let scene = Scene::new();
    // LeaderAndIsr, an API of the future, Metadata 14, Fetch (which is answered on a core).
    for (key, version) in [(4, 0), (1000, 0), (3, 14), (3, -1), (1, 12)] {
        let answer = scene.answer(&cold(header(key, version))).await;
        assert!(matches!(answer, Err(CallError::Unsupported { .. })), "{key} {version}");
    }
    let answer = scene.answer(&cold(BytesMut::from(&b"\0\x03"[..]))).await;
    assert!(matches!(answer, Err(CallError::Header(_))));
    let answer = scene.answer(&cold(header(3, 12))).await;
    assert!(matches!(answer, Err(CallError::Malformed { .. })));
    // Two billion groups in a body of four bytes.
    let mut request = header(15, 0);
    request.put_i32(i32::MAX);
    let answer = scene.answer(&cold(request)).await;
    assert!(matches!(answer, Err(CallError::Malformed { .. })));
}

#[test]
fn random_bodies_never_panic() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let scene = Scene::new();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let request = (
        0..COLD_APIS.len(),
        any::<proptest::sample::Index>(),
        // Small numbers make lengths and counts that are true now and then.
        proptest::collection::vec(prop_oneof![0..4u8, any::<u8>()], 0..60),
    );
    runner
        .run(&request, |(api, version, body)| {
            let range = COLD_APIS[api];
            let version = range.min + version.index((range.max - range.min + 1) as usize) as i16;
            let mut request = header(range.key, version);
            request.put_slice(&body);
            runtime.block_on(async {
                // A join may wait for others: it is dropped like the connection of a client gone.
                let wait = std::time::Duration::from_millis(20);
                let _ = tokio::time::timeout(wait, scene.answer(&cold(request))).await;
            });
            Ok(())
        })
        .unwrap();
}
