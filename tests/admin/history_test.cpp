// History, events and ticks: what is remembered, for how long, and what it is when clocks are set.
#include "server/admin/history/history.hpp"

#include <doctest/doctest.h>
#include <spdlog/details/log_msg.h>
#include <spdlog/spdlog.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include "fake_server.hpp"
#include "server/admin/api/encoding.hpp"
#include "server/admin/events/event_sink.hpp"
#include "server/admin/stream/ticks.hpp"
#include "storage/log_line.hpp"

namespace gpunbd::server::admin::test {
namespace {

namespace json = boost::json;

Status reads(double time, std::uint64_t requests, std::uint64_t bytes) {
    Status status;
    status.time = time;
    ExportStatus& exported = status.exports.emplace_back();
    exported.name = "a";
    exported.requests.resize(1);
    exported.requests[0].type = "read";
    exported.requests[0].requests = requests;
    exported.requests[0].bytes = bytes;
    for (std::uint64_t i = 0; i != requests; ++i) {
        exported.requests[0].latency.record(std::chrono::milliseconds(i < 10 ? 1 : 8));
    }
    return status;
}

TEST_CASE("history: differences of each second") {
    History history;
    CHECK(history.of("a") == nullptr);
    history.sample(reads(100, 10, 1000));
    REQUIRE(history.of("a") != nullptr);
    CHECK(history.of("a")->seconds.empty());
    history.sample(reads(101, 10, 1000));
    history.sample(reads(102, 14, 1400));
    const auto& all = *history.of("a");
    CHECK(all.end == 102);
    REQUIRE(all.seconds.size() == 2);
    CHECK(all.seconds[0].read.requests == 0);
    CHECK(all.seconds[0].read.p99 == 0);
    CHECK(all.seconds[1].read.requests == 4);
    CHECK(all.seconds[1].read.bytes == 400);
    // Of those four alone, not of the ten before.
    CHECK(all.seconds[1].read.p50 == doctest::Approx(0.008).epsilon(0.07));
    CHECK(all.seconds[1].written.requests == 0);
}

TEST_CASE("history: a second that comes late, a clock that is set, and ten minutes") {
    History history;
    history.sample(reads(100, 0, 0));
    history.sample(reads(103.1, 10, 100));
    const auto& seconds = history.of("a")->seconds;
    REQUIRE(seconds.size() == 3);
    CHECK(seconds[0].read.bytes == 33);
    CHECK(seconds[2].read.bytes == 34);
    history.sample(reads(50, 10, 100));
    CHECK(seconds.size() == 4);
    history.sample(reads(1e9, 10, 100));
    CHECK(seconds.size() == History::max_seconds);
    history.sample(reads(1e9 + 1, 10, 100));
    CHECK(seconds.size() == History::max_seconds);
}

TEST_CASE("history: exports that go, and others of their name") {
    History history;
    history.sample(reads(1, 10, 100));
    history.sample(reads(2, 20, 200));
    CHECK(history.of("a")->seconds.size() == 1);
    history.sample(reads(3, 1, 10));
    CHECK(history.of("a")->seconds.empty());
    history.sample(reads(4, 2, 20));
    REQUIRE(history.of("a")->seconds.size() == 1);
    CHECK(history.of("a")->seconds[0].read.requests == 1);
    Status none;
    none.time = 5;
    history.sample(none);
    CHECK(history.of("a") == nullptr);
}

TEST_CASE("events: the last thousand, whatever is in them") {
    EventLog events;
    CHECK(events.after(0).empty());
    for (int i = 0; i != 1005; ++i) {
        EventStatus event;
        event.text = std::to_string(i);
        events.add(std::move(event));
    }
    CHECK(events.last_id() == 1005);
    CHECK(events.after(0).size() == 1000);
    CHECK(events.after(0).front().id == 6);
    CHECK(events.after(0).front().text == "5");
    REQUIRE(events.after(1004).size() == 1);
    CHECK(events.after(1004)[0].id == 1005);
    CHECK(events.after(1005).empty());
    CHECK(events.after(UINT64_MAX).empty());
    EventStatus longest;
    longest.text = std::string(100'000, 'x');
    events.add(std::move(longest));
    CHECK(events.after(1005)[0].text.size() == EventLog::max_text + 3);
}

TEST_CASE("events: lines of the log with their fields") {
    const auto events = std::make_shared<EventLog>();
    const auto before = spdlog::default_logger();
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<EventSink>(events)));
    spdlog::warn("plain \xff");
    storage::LogLine(spdlog::level::err).with("peer", "\"\xfe\n").with("n", 7).say("{}", "said");
    spdlog::set_default_logger(before);
    const auto all = encode_all(events->after(0));
    REQUIRE(all.size() == 2);
    CHECK(all[0].at("level") == "warning");
    CHECK(all[0].at("text") == "plain \xef\xbf\xbd");
    CHECK(all[0].at("fields") == json::object());
    CHECK(all[1].at("level") == "error");
    CHECK(all[1].at("text") == "said");
    CHECK(all[1].at("fields").at("peer") == "\"\xef\xbf\xbd\n");
    CHECK(all[1].at("fields").at("n") == 7);
}

TEST_CASE("ticks: the busiest connections, and events since the last one") {
    EventLog events;
    Ticks ticks(events);
    std::uint64_t seen = 0;
    CHECK(!ticks.tick(seen));
    Status status;
    for (std::uint64_t id = 1; id <= 300; ++id) {
        ConnectionStatus& each = status.connections.emplace_back();
        each.id = id;
        each.requests = 1'000'000 - id;  // long ago
    }
    ticks.set(status);
    status.connections[299].requests += 5;
    ticks.set(status);
    EventStatus event;
    event.text = "line\nline";
    events.add(event);
    const auto text = ticks.tick(seen);
    REQUIRE(text);
    CHECK(seen == 1);
    const std::string start = "event: tick\ndata: ";
    REQUIRE(text->substr(0, start.size()) == start);
    CHECK(text->find('\n', start.size()) == text->size() - 2);
    const json::value tick = json::parse(text->substr(start.size()));
    CHECK(tick.at("connections").as_array().size() == 256);
    CHECK(tick.at("connections").at(0).at("id") == 300);
    CHECK(tick.at("connections_left_out") == 44);
    CHECK(tick.at("status").at("connections") == 300);
    CHECK(tick.at("events").as_array().size() == 1);
    CHECK(ticks.tick(seen)->find("\"events\":[]") != std::string::npos);
}

}  // namespace
}  // namespace gpunbd::server::admin::test
