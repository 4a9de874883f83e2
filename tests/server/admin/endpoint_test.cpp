// The endpoint with sockets: limits, invalid requests, streams with slow readers, and shutdown.
#include "server/admin/endpoint.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <random>

#include "server/admin/http/connection.hpp"
#include "server/net/address_error.hpp"
#include "tests/server/admin/fake_server.hpp"
#include "tests/server/admin/http/http_client.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::admin::test {
namespace {

using std::chrono::milliseconds;

class EndpointRig {
    const gpunbd::test::TemporaryFolder folder_;

 public:
    explicit EndpointRig(const Limits& limits = {}, bool starts = true)
        : endpoint(std::make_unique<Endpoint>(server, events, limits)) {
        endpoint->open_unix(path());
        if (starts) endpoint->start();
    }
    std::string path() const { return folder_.path("socket"); }
    // The status of the reply to a client of its own.
    int get_status(const std::string& target = "/") const {
        return status_of(HttpClient(path(), get(target)).answer());
    }

    // Until there is room for another one.
    void wait_for_a_stream() const {
        for (int status = 503; status != 200;) {
            HttpClient next(path(), get("/api/v1/stream"));
            status = status_of(next.read_until("\r\n\r\n"));
            if (status != 200) ::usleep(20'000);
        }
    }

    FakeServer server;
    std::shared_ptr<EventLog> events = std::make_shared<EventLog>();
    std::unique_ptr<Endpoint> endpoint;
};

std::uint16_t open_on_some_port(Endpoint& endpoint, const EndpointPolicy& policy) {
    for (std::uint16_t port = 20'000; port != 21'000; ++port) {
        try {
            endpoint.open_tcp({.address = "127.0.0.1", .port = port}, policy, nullptr);
            return port;
        } catch (const AddressError&) {
            continue;
        }
    }
    FAIL("no port is free");
    return 0;
}

const std::string slow_change = post("/api/v1/read-only", R"({"export":"slow","read_only":true})");
const std::string slow_removal = post("/api/v1/exports/remove", R"({"name":"slow","force":false})");

std::vector<Completion> take_pending(FakeServer& server, std::size_t count) {
    for (;; ::usleep(1000)) {
        const std::lock_guard lock(server.mutex);
        if (server.pending.size() == count) return std::exchange(server.pending, {});
    }
}

TEST_CASE("endpoint: requests on one connection are handled in order") {
    const EndpointRig rig;
    struct stat file {};
    REQUIRE(::stat(rig.path().c_str(), &file) == 0);
    CHECK((file.st_mode & 0777) == 0600);
    HttpClient client(rig.path());
    // The second request arrives before the response to the first one.
    client.send(get("/api/v1/status") + get("/api/v1/nothing"));
    const std::string first = client.answer();
    CHECK(status_of(first) == 200);
    for (const char* field :
         {"Content-Type: application/json\r\n", "Cache-Control: no-store\r\n",
          "X-Content-Type-Options: nosniff\r\n", "Referrer-Policy: no-referrer\r\n", "Date: "}) {
        CAPTURE(field);
        CHECK(contains(first, field));
    }
    CHECK_FALSE(contains(first, "Set-Cookie"));
    CHECK(status_of(client.answer()) == 404);
    client.send("HEAD /api/v1/status HTTP/1.1\r\nHost: h\r\n\r\n");
    const std::string head = client.answer(true);
    CHECK(status_of(head) == 200);
    CHECK(contains(head, "Content-Length: "));
    client.send("HEAD /api/v1/stream HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(status_of(client.answer(true)) == 200);
    client.send(post("/api/v1/connections/end", R"({"id":7})"));
    CHECK(status_of(client.answer()) == 200);
    client.send("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(status_of(client.answer()) == 404);
    client.send("DELETE /api/v1/status HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    const std::string last = client.rest();
    CHECK(status_of(last) == 405);
    CHECK(contains(last, "Allow: GET, HEAD\r\n"));
}

TEST_CASE("endpoint: oversized requests and invalid HTTP") {
    EndpointRig rig;
    const std::tuple<const char*, std::string, int> rows[] = {
        {"header", "GET / HTTP/1.1\r\nX: " + std::string(9000, 'x') + "\r\n\r\n", 431},
        {"target", get("/" + std::string(9000, 'x')), 431},
        {"a header without end", std::string(40'000, 'x'), 431},
        {"body", post("/api/v1/rates", std::string(16'385, ' ')), 413},
        {"announced body", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n",
         413},
        {"chunked body",
         "POST /api/v1/rates HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5000\r\n" +
             std::string(0x5000, 'x') + "\r\n0\r\n\r\n",
         413},
        {"header of a chunk without end",
         "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;" +
             std::string(40'000, 'x'),
         431},
        {"trailer without end",
         "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" +
             std::string(40'000, 'x'),
         431},
        {"no method", "\r\n\r\n\r\n", 400},
        {"no version", "GET /\r\n\r\n", 400},
        {"binary", std::string("\x16\x03\x01\x02\x00\x01\x00", 7), 400},
        {"lengths that differ",
         "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400},
        {"no Host", "GET /api/v1/status HTTP/1.1\r\nConnection: close\r\n\r\n", 400},
        {"two of them", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n", 400},
        {"another origin",
         "GET / HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\nConnection: close\r\n\r\n", 403},
        {"two origins",
         "GET / HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\nOrigin: http://b\r\n"
         "Connection: close\r\n\r\n",
         403},
    };
    for (const auto& [name, text, status] : rows) {
        CAPTURE(name);
        HttpClient client(rig.path(), text);
        const std::string answer = client.rest();
        CHECK(status_of(answer) == status);
        CHECK(contains(answer, "{\"error\":\""));
    }
    HttpClient exact(rig.path(), post("/api/v1/rates", std::string(16'384, ' ')));
    CHECK(contains(exact.answer(), "not JSON"));
    CHECK(rig.server.calls().empty());
}

TEST_CASE("endpoint: garbage") {
    EndpointRig rig;
    std::mt19937 random(14);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same each time
    const std::string right = post("/api/v1/rates", R"({"export":"a"})");
    for (int round = 0; round != 300; ++round) {
        std::string text = right;
        for (unsigned changes = 1 + random() % 4; changes != 0; --changes) {
            text[random() % text.size()] = static_cast<char>(random());
        }
        text.resize(1 + random() % text.size());
        HttpClient client(rig.path(), text);
        ::shutdown(client.fd(), SHUT_WR);
        const std::string answer = client.rest();
        const int status = status_of(answer);
        CAPTURE(text);
        CAPTURE(answer);
        CHECK((answer.empty() || (status >= 400 && status < 500)));
    }
    CHECK(rig.server.calls().empty());
    CHECK(rig.get_status() == 200);
}

TEST_CASE("endpoint: incomplete requests and idle connections time out") {
    EndpointRig rig({.request = milliseconds(50), .idle = milliseconds(50)}, false);
    // The endpoint accepts this connection when the request is there already.
    HttpClient idle(rig.path(), get("/"));
    rig.endpoint->start();
    CHECK(status_of(idle.answer()) == 200);
    CHECK(idle.rest().empty());
    for (const char* text :
         {"", "GET", "GET / HTTP/1.1\r\nHost: h\r\n",
          "POST /api/v1/rates HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n{"}) {
        CAPTURE(text);
        HttpClient client(rig.path(), text);
        CHECK(client.rest().empty());
    }
}

TEST_CASE("endpoint: the time limit of a request covers all of its bytes") {
    const EndpointRig rig({.request = milliseconds(300)});
    HttpClient client(rig.path());
    // More bytes than the time limit permits.
    for (int i = 0; client.send("x") && i != 10'000; ++i) ::usleep(10'000);
    CHECK_FALSE(contains(client.rest(), "200"));
}

TEST_CASE("endpoint: silent clients are closed for new ones") {
    const EndpointRig rig({.connections = 4});
    std::vector<std::unique_ptr<HttpClient>> silent;
    for (int i = 0; i != 50; ++i) silent.push_back(std::make_unique<HttpClient>(rig.path()));
    CHECK(rig.get_status() == 200);
    // The first connections are closed, and the last ones are not.
    CHECK(silent.front()->rest().empty());
    silent.back()->send(get("/"));
    CHECK(status_of(silent.back()->answer()) == 200);
}

TEST_CASE("endpoint: all loopback addresses are one client") {
    const auto key_at = [](const char* address) {
        Peer peer;
        peer.kind = Peer::Kind::tcp;
        peer.address = address;
        return client_key(peer);
    };
    for (const char* address : {"127.0.0.2", "127.255.255.254", "::1", "::ffff:127.0.0.3"}) {
        CAPTURE(address);
        CHECK(key_at(address) == key_at("127.0.0.1"));
    }
    for (const char* address : {"128.0.0.1", "10.0.0.1", "::2", "::ffff:10.0.0.1"}) {
        CAPTURE(address);
        CHECK(key_at(address) != key_at("127.0.0.1"));
    }
    CHECK(key_at("10.0.0.1") != key_at("10.0.0.2"));
    CHECK(key_at("fe80::1%lo") == "fe80::1%lo");
}

// Each listener has its own limit, so TCP clients do not use slots of the Unix socket.
TEST_CASE("endpoint: clients of one listener do not exhaust the others") {
    EndpointRig rig(
        {.connections = 3, .connections_of_client = 3, .streams = 3, .streams_of_client = 3},
        false);
    const std::uint16_t port = open_on_some_port(*rig.endpoint, {});
    rig.endpoint->start();
    const std::string host = "Host: 127.0.0.1:" + std::to_string(port) + "\r\n\r\n";
    std::vector<std::unique_ptr<HttpClient>> streams;
    for (int i = 0; i != 3; ++i) {
        streams.push_back(std::make_unique<HttpClient>("127.0.0.1", port));
        streams.back()->send("GET /api/v1/stream HTTP/1.1\r\n" + host);
        CHECK(status_of(streams.back()->read_until("\r\n\r\n")) == 200);
    }
    HttpClient too_many("127.0.0.1", port);
    CHECK(status_of(too_many.rest()) == 503);
    HttpClient own(rig.path(), get("/api/v1/stream"));
    CHECK(status_of(own.read_until("\r\n\r\n")) == 200);
}

TEST_CASE("endpoint: clients that linger or do not read are closed for new ones") {
    EndpointRig rig({.connections = 4, .connections_of_client = 4}, false);
    rig.server.current.exports[0].description =
        std::string(512 << 10, 'x');  // more than a socket takes
    rig.endpoint->start();
    for (const char* text :
         {"GET / HTTP/1.0\r\nHost: h\r\n\r\n",  // the client does not close the connection
          "GET /api/v1/status HTTP/1.1\r\nHost: h\r\n\r\n",  // the response is not read
          "GET / HTTP/1.1\r\nHost: h\r\nX: "}) {             // the request does not end
        CAPTURE(text);
        std::vector<std::unique_ptr<HttpClient>> held;
        for (int i = 0; i != 20; ++i) {
            held.push_back(std::make_unique<HttpClient>(rig.path()));
            held.back()->send(text);
        }
        CHECK(rig.get_status("/api/v1/events") == 200);
    }
}

TEST_CASE("endpoint: streams and pending changes are not evicted") {
    EndpointRig rig({.connections = 2, .connections_of_client = 2});
    HttpClient stream(rig.path(), get("/api/v1/stream"));
    stream.read_until("event: tick\n");
    HttpClient changing(rig.path(), slow_change);
    const auto pending = take_pending(rig.server, 1);
    HttpClient third(rig.path());
    CHECK(status_of(third.rest()) == 503);
    pending[0](Done{"done"});
    CHECK(status_of(changing.answer()) == 200);
    CHECK(rig.get_status() == 200);
    CHECK(changing.rest().empty());
}

TEST_CASE("endpoint: streams") {
    EndpointRig rig({.connections = 3, .streams = 2});
    HttpClient first(rig.path());
    HttpClient second(rig.path());
    for (HttpClient* each : {&first, &second}) {
        each->send(get("/api/v1/stream"));
        const std::string head = each->read_until("\r\n\r\n");
        CHECK(status_of(head) == 200);
        CHECK(contains(head, "Content-Type: text/event-stream\r\n"));
    }
    HttpClient third(rig.path(), get("/api/v1/stream"));
    CHECK(status_of(third.rest()) == 503);
    const auto tick_of = [](HttpClient& client) {
        CHECK(client.read_until("\n") == "event: tick\n");
        const std::string data = client.read_until("\n\n");
        return boost::json::parse(data.substr(data.find(' ') + 1));
    };
    // Both streams share one status request per second. While the machine stalls, a stream may
    // leave out ticks.
    const auto request_of = [](const boost::json::value& tick) {
        return tick.at("status").at("process").at("pid").to_number<int>();
    };
    for (HttpClient* each : {&first, &second}) {
        int before = request_of(tick_of(*each));
        int now = request_of(tick_of(*each));
        for (int ticks = 2; now != before + 1; ++ticks) {
            REQUIRE(ticks != 10);
            before = std::exchange(now, request_of(tick_of(*each)));
        }
    }
    EventStatus event;
    event.text = "said";
    rig.events->add(event);
    const boost::json::value tick = [&] {
        for (;;) {
            boost::json::value next = tick_of(first);
            if (!next.at("events").as_array().empty()) return next;
        }
    }();
    CHECK(tick.at("events").at(0).at("text") == "said");
    static_cast<void>(tick_of(second));
    ::shutdown(first.fd(), SHUT_RDWR);
    // The next tick detects the closed connection, so that there is room for another stream.
    rig.wait_for_a_stream();
    CHECK(!second.read_until("\n\n").empty());
}

TEST_CASE("endpoint: a stream that is not read is closed and does not delay others") {
    EndpointRig rig({.streams = 1, .idle = milliseconds(1500)}, false);
    // A tick exceeds the buffers of the sockets.
    rig.server.current.exports[0].description = std::string(4 << 20, 'x');
    rig.endpoint->start();
    HttpClient slow(rig.path(), get("/api/v1/stream"));
    CHECK(status_of(slow.read_until("\r\n\r\n")) == 200);
    CHECK(rig.get_status("/api/v1/events") == 200);
    rig.wait_for_a_stream();
    // It was closed within its first tick, and no further ticks were queued.
    const std::string rest = slow.rest();
    CHECK(rest.find("event: tick") == rest.rfind("event: tick"));
}

TEST_CASE("endpoint: TCP with a token") {
    const gpunbd::test::TemporaryFolder folder;
    const std::string file = folder.write("token", "0123456789abcdef0123456789abcdef\n");
    EndpointRig rig({}, false);
    const std::uint16_t open = open_on_some_port(*rig.endpoint, {});
    const std::uint16_t closed = open_on_some_port(*rig.endpoint, {.token = Token::load(file)});
    rig.endpoint->start();
    const auto ask = [](std::uint16_t port, const std::string& start, const std::string& fields,
                        const std::string& body = "") {
        HttpClient client("127.0.0.1", port);
        client.send(start + " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) + "\r\n" +
                    "Connection: close\r\nContent-Type: application/json\r\nContent-Length: " +
                    std::to_string(body.size()) + "\r\n" + fields + "\r\n" + body);
        return status_of(client.rest());
    };
    const std::string token = "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n";
    const std::string end = R"({"id":7})";
    CHECK(ask(open, "GET /api/v1/status", "") == 200);
    CHECK(ask(open, "POST /api/v1/connections/end", "", end) == 403);
    CHECK(ask(open, "POST /api/v1/connections/end", token, end) == 403);
    CHECK(ask(closed, "GET /api/v1/status", "") == 401);
    CHECK(ask(closed, "GET /metrics", "") == 401);
    CHECK(ask(closed, "GET /api/v1/stream", "") == 401);
    CHECK(ask(closed, "GET /", "") == 200);
    CHECK(ask(closed, "POST /api/v1/connections/end", "", end) == 401);
    CHECK(rig.server.calls().empty());
    CHECK(ask(closed, "GET /api/v1/status", token) == 200);
    CHECK(ask(closed, "GET /api/v1/status", token + token) == 401);
    CHECK(ask(closed, "POST /api/v1/connections/end", token, end) == 200);
    CHECK(rig.server.calls().size() == 1);
    HttpClient rebound("127.0.0.1", open);
    rebound.send("GET / HTTP/1.1\r\nHost: evil.example:" + std::to_string(open) + "\r\n\r\n");
    CHECK(status_of(rebound.answer()) == 421);
}

TEST_CASE("endpoint: stops with requests and streams in progress") {
    for (int round = 0; round != 5; ++round) {
        EndpointRig rig;
        HttpClient silent(rig.path());
        HttpClient half(rig.path(),
                        "POST /api/v1/rates HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n{");
        HttpClient stream(rig.path(), get("/api/v1/stream"));
        if (round % 2 == 0) stream.read_until("event: tick\n");
        rig.endpoint.reset();
        silent.rest();
        half.rest();
        stream.rest();
        CHECK(::access(rig.path().c_str(), F_OK) != 0);
    }
}

TEST_CASE("endpoint: a slow change does not delay other clients") {
    EndpointRig rig;
    HttpClient slow(rig.path(), slow_change + get("/"));
    const auto pending = take_pending(rig.server, 1);
    CHECK(rig.get_status("/api/v1/status") == 200);
    pending[0](Done{"at last"});
    const std::string answer = slow.answer();
    CHECK(status_of(answer) == 200);
    CHECK(contains(answer, R"({"done":"at last"})"));
    CHECK(status_of(slow.answer()) == 200);  // the connection stays open
}

TEST_CASE("endpoint: a dropped change, and a change that times out") {
    {
        EndpointRig rig;
        HttpClient dropped(rig.path(), slow_change);
        take_pending(rig.server, 1).clear();
        CHECK(status_of(dropped.answer()) == 409);
    }
    EndpointRig rig({.outcome = milliseconds(1000)});
    HttpClient client(rig.path(), slow_change);
    const auto late = take_pending(rig.server, 1);
    CHECK(status_of(client.answer()) == 503);
    client.send(slow_removal);  // its time limit is longer
    const auto next = take_pending(rig.server, 1);
    late[0](Done{"too late"});
    next[0](Done{"in time"});
    CHECK(contains(client.answer(), R"({"done":"in time"})"));
}

// The thread that destroys the endpoint is also the one that makes the change.
TEST_CASE("endpoint: stops with pending changes and responds to them") {
    EndpointRig rig;
    HttpClient first(rig.path(), slow_change + get("/"));
    HttpClient second(rig.path(), slow_change);
    const auto pending = take_pending(rig.server, 2);
    rig.endpoint.reset();
    for (HttpClient* each : {&first, &second}) {
        const std::string answer = each->rest();
        CHECK(status_of(answer) == 409);
        CHECK(contains(answer, "the server is ending"));
        CHECK(contains(answer, "Connection: close\r\n"));
        CHECK_FALSE(contains(answer, "doctype"));
    }
    for (const Completion& each : pending) each(Done{"not delivered"});
}

TEST_CASE("endpoint: can be destroyed before start()") {
    const EndpointRig rig({}, false);
    CHECK(rig.endpoint->listens());
}

}  // namespace
}  // namespace gpunbd::server::admin::test
