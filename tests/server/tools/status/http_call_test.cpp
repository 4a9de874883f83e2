// Requests to the server, its responses and its events: whole, byte by byte, truncated, and
// invalid.
#include "server/tools/status/http_call.hpp"

#include "server/tools/status/feed.hpp"
#include "tests/test.hpp"

namespace gpunbd::status {
namespace {

using Response = Failure::Response;

TEST_CASE(
    "http call: a request is repeated while the server is being replaced, and not otherwise") {
    const auto done = success("done");
    const Expected<std::string, Failure> unreachable = Failure{"connection refused"};
    const Expected<std::string, Failure> refused =
        Failure{.text = "no", .response = Response::refused};
    const Expected<std::string, Failure> replaced =
        Failure{.text = "later", .response = Response::replaced};
    struct Row {
        const char* name;
        std::vector<Expected<std::string, Failure>>
            results;  // of the attempts, all of which are made
    };
    for (const Row& row : {Row{"done", {done}}, Row{"unreachable", {unreachable}},
                           Row{"refused", {refused}}, Row{"replaced", {replaced, replaced, done}},
                           Row{"between two servers", {replaced, unreachable, done}},
                           Row{"refused by the successor", {replaced, unreachable, refused}}}) {
        CAPTURE(row.name);
        std::size_t attempts = 0;
        std::size_t pauses = 0;
        const Expected<std::string, Failure> last = repeat_while_replaced(
            [&] {
                REQUIRE(attempts < row.results.size());
                return row.results[attempts++];
            },
            [&] { ++pauses; });
        CHECK(attempts == row.results.size());
        CHECK(pauses == attempts - 1);
        CHECK(last.has_value() == row.results.back().has_value());
    }
}

const std::string plain = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: x\r\n\r\nhello";
const std::string chunked =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
const std::string until_end = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello";

std::string taken(HttpAnswer& answer, std::string_view bytes) {
    const auto failed = answer.take(bytes);
    return failed ? failed->text : "";
}

TEST_CASE("a response is parsed the same in one piece and byte by byte") {
    for (const std::string& text : {plain, chunked, until_end}) {
        CAPTURE(text);
        for (const std::size_t step : {std::size_t{1}, std::size_t{7}, text.size()}) {
            HttpAnswer answer(100);
            std::string body;
            for (std::size_t at = 0; at < text.size(); at += step) {
                REQUIRE(taken(answer, std::string_view(text).substr(at, step)) == "");
                body += answer.take_body();
            }
            CHECK_FALSE(answer.take_end());
            CHECK(answer.complete());
            CHECK(answer.code() == 200);
            CHECK(body == "hello");
        }
    }
}

TEST_CASE("a truncated response is rejected") {
    for (const std::string& text : {plain, chunked}) {
        for (std::size_t end = 0; end != text.size(); ++end) {
            CAPTURE(end);
            HttpAnswer answer(100);
            CHECK(taken(answer, text.substr(0, end)) == "");
            CHECK_FALSE(answer.complete());
            const auto failed = answer.take_end();
            REQUIRE(failed);
            CHECK(failed->text.starts_with("the server closed the connection"));
        }
    }
}

TEST_CASE("an invalid response is rejected with a reason") {
    for (const std::string& text :
         std::vector<std::string>{"NBDMAGIC IHAVEOPT nonsense\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n",
                                  "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
                                  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
                                  "HTTP/1.1 200 OK\r\nA: " + std::string(20'000, 'x')}) {
        CAPTURE(text.substr(0, 60));
        HttpAnswer answer(100);
        CHECK(taken(answer, text).starts_with("the response is not HTTP: "));
        CHECK(answer.is_nbd() == text.starts_with("NBDMAGIC"));
    }
}

TEST_CASE("a response that is too long is rejected") {
    HttpAnswer rejected(4);
    CHECK(taken(rejected, plain) == "the response is too long");
    HttpAnswer until_closed(4);
    CHECK(taken(until_closed, until_end) == "the response is too long");
    HttpAnswer in_chunks(4);
    CHECK(taken(in_chunks, chunked) == "the response is too long");
}

TEST_CASE("a request has a host and, if given, a token and a body") {
    CHECK(
        http_request({.target = "/a?b"}, "localhost", "") ==
        "GET /a?b HTTP/1.1\r\nHost: localhost\r\nUser-Agent: gpunbd\r\nConnection: close\r\n\r\n");
    CHECK(contains(http_request({.target = "/"}, "h", "secret"),
                   "\r\nAuthorization: Bearer secret\r\n"));
    CHECK(http_request({.target = "/", .json = R"({"a":1})"}, "h", "") ==
          "POST / HTTP/1.1\r\nHost: h\r\nUser-Agent: gpunbd\r\nConnection: close\r\n"
          "Content-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}");
}

using Events = std::vector<EventReader::Event>;

std::string joined(const Expected<Events, Failure>& read) {
    if (!read) return read.error().text;
    std::string out;
    for (const auto& each : *read) out += each.name + '=' + each.data + ';';
    return out;
}

TEST_CASE("events are parsed from pieces of any size") {
    const std::string text =
        ": comment\nretry: 5\n\nevent: tick\ndata: {\ndata:}\n\r\nevent:other\r\ndata\r\ndata: "
        "x\r\n\r\ndata: cut";
    for (const std::size_t step : {std::size_t{1}, std::size_t{5}, text.size()}) {
        EventReader reader(100);
        std::string out;
        for (std::size_t at = 0; at < text.size(); at += step) {
            out += joined(reader.take(std::string_view(text).substr(at, step)));
        }
        CHECK(out == "tick={\n};other=x;");
    }
}

TEST_CASE("an event without an end is rejected") {
    EventReader line(10);
    CHECK(joined(line.take("data: 12345678")) == "an event does not end");
    EventReader lines(10);
    std::string rejected;
    for (int i = 0; i != 12 && rejected.empty(); ++i) rejected = joined(lines.take("data: 1\n"));
    CHECK(rejected == "an event does not end");
}

}  // namespace
}  // namespace gpunbd::status
