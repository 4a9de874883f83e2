// The page of `gpunbd top`: every line has exactly the width of the terminal.
#include "server/tools/status/top_page.hpp"

#include <fmt/format.h>

#include "server/tools/status/sanitized_text.hpp"
#include "tests/server/tools/status/sample.hpp"
#include "tests/test.hpp"

namespace gpunbd::status {
namespace {

constexpr PageSize usual{.rows = 24, .columns = 80};

Tick tick_of(const std::string& text) {
    auto read = read_tick(text);
    REQUIRE(read.has_value());
    return *std::move(read);
}

Picture picture_after_a_second() {
    const Tick before = tick_of(sample_tick(1'700'003'600, 0));
    Picture out{.server = "/run/x.sock", .now = tick_of(sample_tick(1'700'003'601, 3 << 20))};
    out.activity = activity_between(before, out.now);
    return out;
}

std::string text_of(const Picture& picture, const View& view, PageSize size = usual) {
    std::string out;
    const std::vector<std::string> lines = draw(picture, view, size).lines(false);
    CHECK(lines.size() == size.rows);
    for (const std::string& line : lines) {
        CAPTURE(line);
        CHECK(columns_of(line) == size.columns);
        out += line + '\n';
    }
    return out;
}

bool has(const std::string& text, const std::string& part) {
    CAPTURE(text);
    CAPTURE(part);
    return contains(text, part);
}

Picture with_exports(std::size_t count) {
    Picture picture = picture_after_a_second();
    const ExportFigures sample = picture.now.status.exports[0];
    picture.now.status.exports.clear();
    for (std::size_t i = 0; i != count; ++i) {
        picture.now.status.exports.push_back(sample);
        picture.now.status.exports.back().name = fmt::format("export-{:03}", i);
        picture.now.status.exports.back().used = i;
    }
    return picture;
}

TEST_CASE("a page of 80 columns and 24 rows shows all parts") {
    const std::string page = text_of(picture_after_a_second(), {});
    CHECK(has(page, "gpunbd 0.1.0  pid 4711  serving 1h00  2 workers"));
    CHECK(has(page, "connections: 2 now, 120 in all, 3 refused, 4 failed; at /run/x.sock"));
    CHECK(has(page, "#####............... provisioning fast: 25%, 1 GiB of 4 GiB"));
    CHECK(has(page, "cuda:0             aaaaaaaa========................"));
    CHECK(has(page, "   1.0G  35.1G  70.2G   140G"));
    CHECK(has(page, "host "));
    CHECK(has(page, "FAILED"));
    CHECK(has(page, "\na>fast"));
    CHECK(has(page, " 1.0G/4.0G "));
    CHECK(has(page, "CLIENTS READ/s WRITE/s REQS/s   P50   P99 QUEUE ERRORS\n"));
    CHECK(has(page, "      1   3.0M       0   3.1k 200us  20ms     3      5\n"));
    CHECK(has(page, "READ/s WRITE/s REQS/s QUEUE ERRORS    AGE  IDENTITY\n"));
    CHECK(has(page, "  3.0M       0   3.1k     3      5   1h00  alice   \n"));
    CHECK_FALSE(has(page, "STALLED"));
    CHECK(has(page, "\nb slow"));
    CHECK(has(page, "  10.1.2.3:4567"));
    CHECK(has(page, "alice"));
    CHECK(has(page, " (handsha~ "));
    CHECK(has(page, "q quit  s sort: rate"));
    CHECK(has(page, "(7 more)"));
}

TEST_CASE("stalled clients and new errors are highlighted") {
    const Tick before = tick_of(sample_tick(1'700'003'600, 0));
    Picture picture{.server = "/run/x.sock",
                    .now = tick_of(sample_tick(1'700'003'601, 3 << 20, 2))};
    picture.activity = activity_between(before, picture.now);
    const std::string page = text_of(picture, {});
    CHECK(has(page, "connections: 2 now (2 stalled), 120 in all, 3 refused, 4 failed; at"));
    CHECK(has(page, "      STALLED for 25s     3      7   1h00  alice"));
    CHECK(has(page, "20ms     3      7\n"));
    const Canvas canvas = draw(picture, {}, usual);
    std::size_t warnings = 0;
    for (const std::string& line : canvas.lines(true)) {
        if (contains(line, "\x1b[0;1;31m")) ++warnings;
    }
    // The line of the connections, the export, its client, and the device that has failed.
    CHECK(warnings == 4);
}

// A server with large counters: parts that do not fit are left out, and no part is truncated.
TEST_CASE("figures with many digits leave the first lines whole") {
    Picture picture = picture_after_a_second();
    ProcessFigures& process = picture.now.status.process;
    process.version = "0.1.0-rc1";
    process.pid = 4'194'303;
    process.workers = 128;
    process.open_files = 1'048'576;
    process.max_open_files = 1'073'741'816;
    picture.now.status.accepted = 4'000'000'000;
    picture.server = "/run/user/1000/gpunbd/admin-4194303.sock";
    const std::string page = text_of(picture, {});
    CHECK(has(page, "gpunbd 0.1.0-rc1  pid 4194303  serving 1h00  128 workers"));
    CHECK_FALSE(has(page, "1048576 of"));
    CHECK_FALSE(has(page, "at /run"));
    CHECK(has(page, "4000000000 in all, 3 refused, 4 failed  "));
    picture.now.status.connections = 4'000'000'000;
    picture.now.status.refused = 4'000'000'000;
    picture.now.status.failed_handshakes = 4'000'000'000;
    CHECK(has(text_of(picture, {}), "4000000000 in all, 4000000000 refused   "));
}

TEST_CASE("every page size gives lines of exactly that width") {
    const Picture picture = with_exports(60);
    for (const std::size_t rows : {1, 2, 5, 6, 7, 9, 24, 50, 200}) {
        for (const std::size_t columns : {1, 2, 10, 40, 59, 79, 80, 81, 132, 300}) {
            CAPTURE(rows);
            CAPTURE(columns);
            text_of(picture, {}, {rows, columns});
            text_of(picture, {.help = true}, {rows, columns});
        }
    }
}

TEST_CASE("wide and hostile names stay in their columns") {
    Picture picture = picture_after_a_second();
    std::string wide;
    for (int i = 0; i != 40; ++i) wide += "\xe6\xbc\xa2";
    picture.now.status.exports[0].name = wide;
    picture.now.status.exports[1].name = std::string(5000, 'n');
    picture.now.connections[0].peer = wide;
    picture.now.connections[0].export_name = wide;
    picture.now.connections[0].identity = wide;
    picture.now.status.process.version = wide;
    picture.now.status.devices[0].id = wide;
    const std::string page = text_of(picture, {});
    CHECK(has(page, "nnn~ "));
    CHECK(has(page, "\xe6\xbc\xa2~ "));
    CHECK_FALSE(has(page, std::string(20, 'n')));
}

TEST_CASE("the largest figures fit the page") {
    Picture picture = picture_after_a_second();
    constexpr std::uint64_t most = ~std::uint64_t{0};
    for (ExportFigures& each : picture.now.status.exports) {
        each.size = each.used = each.connections = most;
        each.memory.push_back({"cuda:0", most});
        each.memory.push_back({"cuda:0", most});
    }
    picture.now.status.devices[0].available = most;
    picture.now.status.progress[0].done = most;
    CHECK(has(text_of(picture, {}), "16.0E/16.0E "));
    CHECK(has(text_of(picture, {}, {24, 100}), "16.0E/16.0E ##########   >9999 "));
}

TEST_CASE("the page shows why and for how long a server does not answer") {
    Picture picture = picture_after_a_second();
    picture.trouble = "Connection refused";
    picture.trouble_seconds = 75;
    CHECK(has(text_of(picture, {}), "NOT ANSWERING for 1m15: Connection refused; at /run/x.sock"));
}

TEST_CASE("rates are only calculated within one process, and are never negative") {
    const Tick before = tick_of(sample_tick(1'700'003'600, 5 << 20));
    Tick now = tick_of(sample_tick(1'700'003'602, 7 << 20));
    const auto activity = activity_between(before, now);
    REQUIRE(activity);
    CHECK(activity->of_export("fast").read == doctest::Approx(1 << 20));
    CHECK(activity->of_connection(1).read == doctest::Approx(1 << 20));
    CHECK(activity->of_export("none").read == 0);
    CHECK_FALSE(activity_between(now, before));
    CHECK_FALSE(activity_between(now, now));
    const auto shrunk = activity_between(before, tick_of(sample_tick(1'700'003'602, 0)));
    REQUIRE(shrunk);
    CHECK(shrunk->of_export("fast").read == 0);
    now.status.process.started += 1;
    CHECK_FALSE(activity_between(before, now));
    now.status.process.started -= 1;
    now.status.process.pid += 1;
    CHECK_FALSE(activity_between(before, now));
}

TEST_CASE("keys select exports, sort them, and show a single one") {
    const Picture picture = with_exports(60);
    View view;
    const auto press = [&](Key key) { handle_key(key, picture, usual, view); };
    CHECK(has(text_of(picture, view), ">export-000"));
    press(Key::down);
    CHECK(has(text_of(picture, view), ">export-001"));
    press(Key::page_down);
    press(Key::page_down);
    CHECK(has(text_of(picture, view), ">export-025"));
    for (int i = 0; i != 10; ++i) press(Key::page_down);
    CHECK(has(text_of(picture, view), ">export-059"));
    press(Key::up);
    CHECK(has(text_of(picture, view), ">export-058"));
    press(Key::only_one);
    const std::string one = text_of(picture, view);
    CHECK(has(one, ">export-058"));
    CHECK_FALSE(has(one, "export-057"));
    CHECK_FALSE(has(one, "10.1.2.3"));  // a client of another export
    press(Key::only_one);
    for (int i = 0; i != 10; ++i) press(Key::page_up);
    CHECK(has(text_of(picture, view), ">export-000"));
    for (const char* name : {"requests", "latency", "used"}) {
        press(Key::sort);
        CHECK(has(text_of(picture, view), std::string("sort: ") + name));
    }
    view.selected.clear();
    CHECK(has(text_of(picture, view), ">export-059"));
    for (const char* name : {"clients", "name", "rate"}) {
        press(Key::sort);
        CHECK(has(text_of(picture, view), std::string("sort: ") + name));
    }
    press(Key::explain);
    CHECK(has(text_of(picture, view), "sort by rate, requests, latency,"));
    press(Key::explain);
    CHECK_FALSE(has(text_of(picture, view), "sort by rate, requests, latency,"));
}

TEST_CASE("with a single export, keys scroll through its clients") {
    Picture picture = picture_after_a_second();
    const ConnectionFigures sample = picture.now.connections[0];
    picture.now.connections.clear();
    for (int i = 0; i != 40; ++i) {
        picture.now.connections.push_back(sample);
        picture.now.connections.back().peer = fmt::format("peer-{:02}", i);
        picture.now.connections.back().id = static_cast<std::uint64_t>(i);
    }
    picture.activity.reset();
    View view;
    handle_key(Key::only_one, picture, usual, view);
    CHECK(has(text_of(picture, view), "peer-00"));
    for (int i = 0; i != 10; ++i) handle_key(Key::page_down, picture, usual, view);
    const std::string end = text_of(picture, view);
    CHECK(has(end, "peer-39"));
    CHECK_FALSE(has(end, "peer-00"));
}

TEST_CASE("keys have no effect without exports and clients") {
    Picture picture;
    View view;
    for (const Key key : {Key::down, Key::up, Key::page_down, Key::page_up, Key::only_one,
                          Key::down, Key::sort, Key::explain}) {
        handle_key(key, picture, usual, view);
        text_of(picture, view);
    }
}

TEST_CASE("the whole content fits the number of rows that it reports") {
    const Picture picture = with_exports(60);
    const std::string page = text_of(picture, {}, {rows_for_all(picture), 80});
    CHECK(has(page, "export-059"));
    CHECK(has(page, "(handsha"));
}

TEST_CASE("keys are decoded from whole sequences and from single bytes") {
    const std::string typed = "q\x1b[A\x1b[5~\x1bOBx\x1b[1;5Cs\x1b[6~?e";
    const std::vector<Key> meant{Key::quit, Key::up,        Key::page_up, Key::down,
                                 Key::sort, Key::page_down, Key::explain, Key::only_one};
    KeyReader whole;
    CHECK(whole.take(typed) == meant);
    KeyReader pieces;
    std::vector<Key> out;
    for (const char byte : typed) {
        for (const Key key : pieces.take({&byte, 1})) out.push_back(key);
    }
    CHECK(out == meant);
    KeyReader endless;
    CHECK(endless.take("\x1b[" + std::string(100, '1')).empty());
    CHECK(endless.take("q") == std::vector<Key>{Key::quit});
}

TEST_CASE("styles end with each line, and are absent without colours") {
    const Canvas page = draw(picture_after_a_second(), {}, usual);
    for (const std::string& line : page.lines(false)) {
        CHECK(line.find('\x1b') == std::string::npos);
    }
    for (const std::string& line : page.lines(true)) {
        CAPTURE(line);
        const std::size_t last = line.rfind('\x1b');
        if (last != std::string::npos) CHECK(line.substr(last, 4) == "\x1b[0m");
    }
    CHECK(page.lines(true)[0].starts_with("\x1b[0;1m"));
}

TEST_CASE("no half of a wide character remains") {
    Canvas canvas({.rows = 1, .columns = 4});
    canvas.put(0, 0, "\xe6\xbc\xa2\xe5\xad\x97");
    canvas.put(0, 1, "x");
    CHECK(canvas.lines(false)[0] == " x\xe5\xad\x97");
    canvas.put(0, 2, "y");
    CHECK(canvas.lines(false)[0] == " xy ");
    canvas.put(0, 3, "\xe6\xbc\xa2");
    CHECK(canvas.lines(false)[0] == " xy ");
    canvas.put(1, 0, "beyond");
    canvas.put(0, 9, "beyond");
    CHECK(canvas.lines(false)[0] == " xy ");
}

}  // namespace
}  // namespace gpunbd::status
