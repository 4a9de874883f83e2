// Tests of the history, the events and the ticks.
#include "server/admin/model/history.hpp"

#include <spdlog/details/log_msg.h>
#include <spdlog/spdlog.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include "server/admin/api/encoding.hpp"
#include "server/admin/api/ticks.hpp"
#include "server/admin/model/event_log.hpp"
#include "storage/base/log_line.hpp"
#include "tests/server/admin/fake_server.hpp"
#include "tests/test.hpp"

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

History::Series of(const History& history, std::size_t seconds = History::max_fine) {
    const auto found = history.of("a", seconds);
    REQUIRE(found);
    return *found;
}

TEST_CASE("history: that of a renamed export goes on") {
    const auto named = [](Status status, const std::string& name, const std::string& instance) {
        status.exports[0].name = name;
        status.exports[0].instance = instance;
        return status;
    };
    History history;
    history.sample(named(reads(100, 10, 1000), "old", "abc"));
    history.sample(named(reads(101, 11, 1100), "old", "abc"));
    history.sample(named(reads(102, 14, 1400), "a", "abc"));
    CHECK(of(history).intervals.size() == 2);
    CHECK(of(history).intervals[1].read.bytes == 300);
    CHECK_FALSE(history.of("old", 600));
    history.sample(named(reads(103, 20, 2000), "b", "def"));
    CHECK(history.of("b", 600)->intervals.empty());
}

TEST_CASE("history: records the difference of each second") {
    History history;
    CHECK(!history.of("a", 600));
    history.sample(reads(100, 10, 1000));
    CHECK(of(history).intervals.empty());
    history.sample(reads(101, 10, 1000));
    history.sample(reads(102, 14, 1400));
    const History::Series all = of(history);
    CHECK(all.end == 102);
    CHECK(all.step == 1);
    REQUIRE(all.intervals.size() == 2);
    CHECK(all.intervals[0].read.requests == 0);
    CHECK(all.intervals[0].read.p99 == 0);
    CHECK(all.intervals[1].read.requests == 4);
    CHECK(all.intervals[1].read.bytes == 400);
    // Only of the last four, not of the ten before.
    CHECK(all.intervals[1].read.p50 == doctest::Approx(0.008).epsilon(0.07));
    CHECK(all.intervals[1].written.requests == 0);
    CHECK(of(history, 1).intervals.size() == 1);
    CHECK(of(history, 1).intervals[0].read.bytes == 400);
    Status status = reads(102, 14, 1400);
    history.add_last_second(status);
    CHECK(status.exports[0].last_second.read_p99 == doctest::Approx(0.008).epsilon(0.07));
    CHECK(status.exports[0].last_second.write_p99 == 0);
    const auto trends = history.trends(60);
    CHECK(trends.at("a") == std::vector<std::uint64_t>{0, 400});
    history.sample(reads(103, 14, 1400));
    history.add_last_second(status);
    CHECK(status.exports[0].last_second.read_p99 == 0);
    CHECK(history.trends(1).empty());
}

TEST_CASE("history: the longest request of each second, of a late sample and of ten seconds") {
    History history;
    const auto sample = [&](double time, std::uint64_t requests, double second, double minute) {
        Status status = reads(time, requests, 100 * requests);
        ExportStatus& exported = status.exports[0];
        exported.last_second.longest.seconds = second;
        exported.longest = {.type = "read", .seconds = minute, .age = 1};
        exported.longest.waits = {{"queue", minute}};
        history.sample(status);
    };
    sample(100, 1, 0, 0);
    sample(101, 2, 0.25, 0.25);
    sample(102, 3, 0.5, 0.5);
    sample(105, 4, 0.125, 2);
    std::vector<float> durations;
    for (const auto& each : of(history).intervals) durations.push_back(each.longest.duration);
    CHECK(durations == std::vector<float>{0.25, 0.5, 0, 0, 2});
    CHECK(of(history).intervals.back().longest.waits[0] == 2);
    sample(110, 5, 1, 1);
    CHECK(of(history, History::max_fine + 1).intervals.back().longest.duration == 2);
}

TEST_CASE("history: late samples, changed clocks, and ten minutes") {
    History history;
    history.sample(reads(100, 0, 0));
    history.sample(reads(103.1, 10, 100));
    const auto seconds = of(history).intervals;
    REQUIRE(seconds.size() == 3);
    CHECK(seconds[0].read.bytes == 33);
    CHECK(seconds[2].read.bytes == 34);
    history.sample(reads(50, 10, 100));
    CHECK(of(history).intervals.size() == 4);
    history.sample(reads(1e9, 10, 100));
    CHECK(of(history).intervals.size() == History::max_fine);
    history.sample(reads(1e9 + 1, 10, 100));
    CHECK(of(history).intervals.size() == History::max_fine);
}

TEST_CASE("history: an hour in intervals of ten seconds") {
    History history;
    std::uint64_t requests = 0;
    for (int second = 0; second <= 4000; ++second) {
        history.sample(reads(1000 + second, requests, requests * 100));
        if (second % 10 < 3) requests += 2;
    }
    const History::Series hour = of(history, 3600);
    CHECK(hour.step == 10);
    CHECK(hour.end == 5000);
    CHECK(hour.intervals.size() == 360);
    for (const auto& each : hour.intervals) {
        CHECK(each.read.requests == 6);
        CHECK(each.read.bytes == 600);
        CHECK(each.read.p50 == doctest::Approx(0.008).epsilon(0.07));
    }
    CHECK(of(history, 601).intervals.size() == 61);
    CHECK(of(history, 600).intervals.size() == 600);
    CHECK(of(history, 600).step == 1);
    for (int second = 4001; second <= 4007; ++second) {
        history.sample(reads(1000 + second, requests, requests * 100));
    }
    CHECK(of(history, 3600).end == 5000);  // the next ten seconds have not ended
}

TEST_CASE("history: an unused export needs no memory, and its age is known") {
    History history;
    for (int second = 0; second <= 100; ++second) history.sample(reads(1 + second, 10, 1000));
    CHECK(of(history).intervals.empty());
    history.sample(reads(102, 12, 1200));
    CHECK(of(history).intervals.size() == 101);
    CHECK(of(history, 3600).intervals.size() == 10);
    CHECK(of(history).intervals.back().read.bytes == 200);
    for (int second = 0; second != 3602; ++second) history.sample(reads(103 + second, 12, 1200));
    CHECK(of(history).intervals.empty());
}

TEST_CASE("history: keeps the most recently used exports") {
    const auto status_of = [](double time, std::uint64_t first) {
        Status status;
        status.time = time;
        for (std::uint64_t i = 0; i != 2 * History::max_exports; ++i) {
            ExportStatus& exported = status.exports.emplace_back();
            exported.name = std::to_string(i);
            exported.requests.resize(1);
            exported.requests[0].type = "write";
            exported.requests[0].requests = i >= first ? 1 : 0;
            exported.requests[0].bytes = i >= first ? 10 : 0;
        }
        return status;
    };
    History history;
    history.sample(status_of(1, 2 * History::max_exports));
    history.sample(status_of(2, History::max_exports));
    CHECK(history.trends(60).size() == History::max_exports);
    CHECK(history.of("0", 600)->intervals.empty());
    history.sample(status_of(3, History::max_exports - 1));
    CHECK(history.trends(60).size() == History::max_exports);
    CHECK(history.of(std::to_string(History::max_exports - 1), 600)->intervals.size() == 2);
    // An export whose history was dropped restarts without its earlier activity.
    Status all = status_of(4, 0);
    for (ExportStatus& each : all.exports) each.requests[0].requests += 1;
    history.sample(all);
    CHECK(history.trends(60).size() == History::max_exports);
}

TEST_CASE("history: removed exports, and new exports of the same name") {
    History history;
    history.sample(reads(1, 10, 100));
    history.sample(reads(2, 20, 200));
    CHECK(of(history).intervals.size() == 1);
    history.sample(reads(3, 1, 10));
    CHECK(of(history).intervals.empty());
    history.sample(reads(4, 2, 20));
    REQUIRE(of(history).intervals.size() == 1);
    CHECK(of(history).intervals[0].read.requests == 1);
    Status none;
    none.time = 5;
    history.sample(none);
    CHECK(!history.of("a", 600));
}

TEST_CASE("events: keeps the last thousand, with any contents") {
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

TEST_CASE("events: log lines with their fields") {
    const auto events = std::make_shared<EventLog>();
    const auto before = spdlog::default_logger();
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<EventSink>(events)));
    spdlog::warn("plain \xff");
    storage::LogLine(spdlog::level::err).with("peer", "\"\xfe\n").with("n", 7).log("{}", "said");
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

TEST_CASE("ticks: the busiest connections, and events since the previous tick") {
    EventLog events;
    Ticks ticks(events);
    std::uint64_t seen = 0;
    CHECK(!ticks.tick(seen));
    Status status;
    for (std::uint64_t id = 1; id <= 300; ++id) {
        ConnectionStatus& each = status.connections.emplace_back();
        each.id = id;
        each.requests = 1'000'000 - id;  // in the past
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
    CHECK(contains(*ticks.tick(seen), "\"events\":[]"));
    // Stalled connections are idle but come first. If there are too many, the longest stalled ones
    // do.
    for (std::size_t i = 0; i != 200; ++i) status.connections[i].stalled = 5;
    status.connections[150].stalled = 100;
    ticks.set(status);
    const auto stalled = ticks.tick(seen);
    const json::value with_stalled = json::parse(stalled->substr(start.size()));
    int count = 0;
    bool longest = false;
    for (const json::value& each : with_stalled.at("connections").as_array()) {
        const auto seconds = each.at("stalled").to_number<double>();
        count += seconds == 0 ? 0 : 1;
        longest = longest || seconds == 100;
    }
    CHECK(count >= 128);
    CHECK(count < 256);
    CHECK(longest);
}

}  // namespace
}  // namespace gpunbd::server::admin::test
