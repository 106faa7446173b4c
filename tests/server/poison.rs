//! A request that kills every device it is on is ended; nobody else loses a byte. And an operator ends any request by its id.

use crate::http::{get, open, post, read_answer, send};
use crate::process::{Server, free_port};
use crate::streams::{begin, end, stream};
use serde_json::json;

/// The id that the deadly prompt begins with; no other prompt here does.
const POISON: u32 = 300;

#[test]
fn a_deadly_request_is_ended_after_three_deaths_and_its_company_loses_nothing() {
    let wanted = end(begin(&Server::start("llama", &[]), 8, 60));
    let poison = POISON.to_string();
    for (isolation, fault) in [("thread", "panic"), ("process", "crash")] {
        let hooks = ["--debug-poison", &poison, "--debug-fault", fault];
        let flags = ["--isolation", isolation, "--debug-step-delay-ms", "15"];
        let server = Server::start("llama", &[&hooks[..], &flags].concat());
        let streams = begin(&server, 8, 60);
        server.wait_metric("ropeteam_requests_running", 8.0);
        let deadly = json!({"prompt": [POISON, 5, 6], "max_tokens": 9});
        let answer = post(server.port, "/v1/completions", &deadly);
        assert_eq!(answer.status, 500, "{isolation}: {}", answer.body);
        assert!(
            answer.body.contains("the device failed"),
            "{isolation}: {}",
            answer.body
        );
        assert_eq!(end(streams), wanted, "{isolation}");
        assert_eq!(server.restarts(), 3.0, "{isolation}");
        server.wait_metric("ropeteam_requests_running", 0.0);
        // It comes again, and again only three lives are lost.
        let again = open(server.port, "/v1/completions", &deadly);
        let company = end(begin(&server, 2, 60));
        assert_eq!(company, wanted[..2], "{isolation}");
        assert_eq!(read_answer(again).status, 500, "{isolation}");
    }
}

#[test]
fn a_request_is_ended_by_its_id_and_its_company_goes_on() {
    let wanted = end(begin(&Server::start("llama", &[]), 4, 60));
    for isolation in ["thread", "process"] {
        let port = free_port();
        let text = port.to_string();
        let flags = ["--isolation", isolation, "--debug-step-delay-ms", "15"];
        let server = Server::start(
            "llama",
            &[&flags[..], &["--management-port", &text]].concat(),
        );
        let free = server.metric("ropeteam_kv_blocks_free");
        let long = open(server.port, "/v1/completions", &stream(9, 400));
        server.wait_metric("ropeteam_requests_running", 1.0);
        let list = get(port, "/v1/requests").json();
        let id = list["requests"][0]["request"].as_str().expect("an id");
        let company = begin(&server, 4, 60);
        server.wait_metric("ropeteam_requests_running", 5.0);
        let path = format!("/v1/requests/{id}");
        let ended = send(port, "DELETE", &path, &json!({}));
        assert_eq!(ended.status, 200, "{isolation}: {}", ended.body);
        let told = read_answer(long).body;
        assert!(told.contains("ended by an operator"), "{isolation}: {told}");
        assert_eq!(end(company), wanted, "{isolation}");
        server.wait_metric("ropeteam_requests_running", 0.0);
        server.wait_metric("ropeteam_kv_blocks_free", free);
        assert_eq!(send(port, "DELETE", &path, &json!({})).status, 404);
        let nonsense = send(port, "DELETE", "/v1/requests/%00..%2f", &json!({}));
        assert!(
            (400..500).contains(&nonsense.status),
            "{}: {}",
            nonsense.status,
            nonsense.body
        );
    }
}
