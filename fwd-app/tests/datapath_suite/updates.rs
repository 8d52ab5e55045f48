//! Routes that change while packets flow: every packet's next hop was in service while the packet was in the forwarder.

use crate::support::{changes, comments, mix_command, number, replay_mix, report, stderr};

#[test]
fn every_result_is_that_of_a_generation_in_between() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("updates.txt");
    std::fs::write(&file, changes(20)).unwrap();
    for (engine, topology) in [
        ("oracle", "run-to-completion"),
        ("bloom", "run-to-completion"),
        ("bloom", "pipeline"),
        ("miht", "run-to-completion"),
        ("mamt", "run-to-completion"),
        ("coop", "pipeline"),
    ] {
        let loops = ["--loops", "30", "--rate", "400kpps", "--engine", engine, "--topology", topology];
        let updates = ["--verify", "--updates", file.to_str().unwrap(), "--update-rate", "50000"];
        let extra = [&loops[..], &updates].concat();
        let Some(summary) = replay_mix(&extra) else { return };
        assert_eq!(number(&summary, "/packets/rx"), 60_000);
        let updates = number(&summary, "/engine/updates_applied");
        assert!(updates > 1000, "{updates} updates while packets flowed");
        assert!(number(&summary, "/engine/generations_applied") > 1);
    }
}

#[test]
fn a_stream_that_is_looped_goes_on_and_stays_verified() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("updates.txt");
    let text = changes(3);
    std::fs::write(&file, &text).unwrap();
    for batch in ["1", "64", "1024"] {
        let loops =
            ["--loops", "60", "--rate", "200kpps", "--engine", "bloom", "--verify", "--update-batch", batch];
        let updates =
            ["--updates", file.to_str().unwrap(), "--update-rate", "200000", "--update-loops", "1000000"];
        let Some(summary) = replay_mix(&[&loops[..], &updates].concat()) else { return };
        assert_eq!(number(&summary, "/packets/rx"), 120_000);
        let updates = number(&summary, "/engine/updates_applied");
        assert!(
            updates > 3 * text.lines().count() as u64,
            "{updates} updates, the stream went round less than three times"
        );
    }
}

#[test]
fn updates_that_are_refused_end_and_packets_go_on() {
    // The second update names a port that does not exist.
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("updates.txt");
    std::fs::write(&file, "a 10.0.0.0/8 7\na 10.0.0.0/8 via 192.0.2.1 dev eth9\na 10.0.0.0/8 8\n").unwrap();
    let mut command = mix_command();
    command.args(["--verify", "--loops", "20", "--update-rate", "1000", "--update-batch", "1"]);
    command.arg("--updates").arg(&file);
    let Some((summary, _)) = report(command, 1) else { return };
    assert_eq!(number(&summary, "/packets/rx"), 40_000);
    let error = summary["engine"]["update_error"].as_str().unwrap();
    assert!(error.contains("updates ended after 1") && error.contains("eth9"), "{error}");
}

#[test]
fn dropped_packets_are_captured_from_the_start() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("drops.pcapng");
    for (wanted, packets) in [(file.display().to_string(), 125), (format!("{},7", file.display()), 7)] {
        let extra = ["--capture-drops", &wanted];
        let Some(summary) = replay_mix(&extra) else { return };
        assert_eq!(number(&summary, "/packets/drops/no_route"), 125);
        assert_eq!(comments(&file, "no_route"), packets);
    }
}

#[test]
fn a_wrong_line_of_the_stream_is_told_before_the_first_packet() {
    let scratch = tempfile::tempdir().unwrap();
    let (file, json) = (scratch.path().join("updates.txt"), scratch.path().join("summary.json"));
    std::fs::write(&file, "a 10.0.0.0/8 7\nnonsense\n").unwrap();
    let mut command = mix_command();
    command.args(["--update-rate", "1", "--json"]).arg(&json).arg("--updates").arg(&file);
    let output = command.output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("updates.txt:2") && !json.exists(), "{said}");
}
