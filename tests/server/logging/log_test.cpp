#include "server/logging/log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "server/base/line_limit.hpp"
#include "storage/base/log_line.hpp"
#include "tests/server/captured_log.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using namespace std::string_literals;
using spdlog::level::level_enum;
using storage::LogLine;

// The offset includes half an hour, so that whole hours are not sufficient.
class TimeZone {
 public:
    explicit TimeZone(const char* zone) {
        ::setenv("TZ", zone, 1);
        ::tzset();
    }
    ~TimeZone() {
        ::unsetenv("TZ");
        ::tzset();
    }
    TimeZone(const TimeZone&) = delete;
    TimeZone& operator=(const TimeZone&) = delete;
};

TEST_CASE("log: a line as text and as JSON") {
    const TimeZone zone("HERE-5:30");
    struct Row {
        const char* name;
        void (*log)();
        std::string text;  // after the time
        std::string json;
    };
    const Row rows[] = {
        {"a plain message", [] { spdlog::info("listening on {}", "here"); },
         "info: listening on here", R"("level":"info","message":"listening on here")"},
        {"fields",
         [] {
             LogLine(level_enum::warn)
                 .with("peer", "127.0.0.1:1")
                 .with("bytes", std::uint64_t{18446744073709551615U})
                 .with("seconds", 1.5)
                 .with("offset", -1)
                 .log("{} said {}", "it", 7);
         },
         "warning: it said 7",
         R"("level":"warning","message":"it said 7","peer":"127.0.0.1:1","bytes":18446744073709551615,"seconds":1.500,"offset":-1)"},
        {"fields and no text", [] { LogLine(level_enum::info).with("export", "").log(""); },
         "info: ", R"("level":"info","message":"","export":"")"},
        {"quotes and backslashes",
         [] { LogLine(level_enum::err).with("export", R"(a"b\c)").log(R"("\)"); }, R"(error: "\)",
         R"("level":"error","message":"\"\\","export":"a\"b\\c")"},
        {"control characters",
         [] { LogLine(level_enum::info).with("export", "\x1b[31m\t\0\x7f"s).log("\x1b\r\x7f"); },
         "info: ???",
         R"("level":"info","message":"\u001b\u000d\u007f","export":"\u001b[31m\u0009\u0000\u007f")"},
        {"control characters of two bytes", [] { spdlog::info("a\u009b2J\u00a0\u0080"); },
         "info: a?2J\u00a0?", "\"level\":\"info\",\"message\":\"a\u009b2J\u00a0\u0080\""},
        {"several lines", [] { spdlog::info("trace\nREAD\n"); }, "info: trace\nREAD\n",
         R"("level":"info","message":"trace\nREAD\n")"},
        {"UTF-8", [] { LogLine(level_enum::info).with("export", "größe €").log("größe"); },
         "info: größe", R"("level":"info","message":"größe","export":"größe €")"},
        {"no UTF-8", [] { LogLine(level_enum::info).with("export", "a\xff\xe2\x82").log("\xc0z"); },
         "info: \xc0z",
         "\"level\":\"info\",\"message\":\"\ufffdz\",\"export\":\"a\ufffd\ufffd\ufffd\""},
        {"a message that looks like fields", [] { spdlog::error("{}", "a\",\"export\":\"b"); },
         "error: a\",\"export\":\"b", R"("level":"error","message":"a\",\"export\":\"b")"},
        {"the longest value",
         [] { LogLine(level_enum::info).with("export", std::string(1024, 'x')).log(""); },
         "info: ", R"("level":"info","message":"","export":")" + std::string(1024, 'x') + '"'},
        {"a longer value",
         [] { LogLine(level_enum::info).with("export", std::string(5000, 'x')).log(""); },
         "info: ", R"("level":"info","message":"","export":")" + std::string(1024, 'x') + "...\""},
        {"one that would be cut within a character",
         [] { LogLine(level_enum::info).with("export", std::string(1023, 'x') + "€€").log(""); },
         "info: ", R"("level":"info","message":"","export":")" + std::string(1023, 'x') + "...\""},
        {"critical", [] { LogLine(level_enum::critical).with("device", "cuda:0").log("lost"); },
         "critical: lost", R"("level":"critical","message":"lost","device":"cuda:0")"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.name);
        const CapturedLog log(level_enum::info);
        row.log();
        const auto text = log.lines(config::LogFormat::text);
        const auto json = log.lines(config::LogFormat::json);
        REQUIRE(text.size() == 1);
        REQUIRE(json.size() == 1);
        CHECK(text[0] == "2026-11-22 01:50:42.123 +0530 " + row.text + '\n');
        CHECK(json[0] == R"({"time":"2026-11-22T01:50:42.123+05:30",)" + row.json + "}\n");
    }
}

// The pipe that a Log writes to. Its capacity is one page.
struct LogPipe {
    LogPipe() {
        REQUIRE(::pipe(ends) == 0);
        REQUIRE(::fcntl(ends[1], F_SETPIPE_SZ, 4096) == 4096);
    }
    ~LogPipe() {
        ::close(ends[0]);
        if (ends[1] >= 0) ::close(ends[1]);
    }
    LogPipe(const LogPipe&) = delete;
    LogPipe& operator=(const LogPipe&) = delete;
    // Empty: the end.
    std::string piece() {
        std::array<char, 4096> bytes{};
        const ssize_t got = ::read(ends[0], bytes.data(), bytes.size());
        return {bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
    }
    std::string rest() {
        std::string said;
        for (std::string next; !(next = piece()).empty();) said += next;
        return said;
    }
    int ends[2];
};

std::size_t count(const std::string& text, std::string_view part) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
    return found;
}

TEST_CASE("log: without a reader, neither logging nor the end of the log blocks") {
    constexpr std::size_t lines = 3 * Log::max_waiting;
    LogPipe pipe;
    {
        const Log log({}, pipe.ends[1]);
        for (std::size_t i = 0; i != lines; ++i) spdlog::info("line {}.", i);
    }
    // The destructor did not wait either: the pipe contains all output.
    ::close(std::exchange(pipe.ends[1], -1));
    CHECK(pipe.rest().size() <= 4096);
}

TEST_CASE("log: the number of dropped lines is logged when reading resumes") {
    constexpr std::size_t lines = 3 * Log::max_waiting;
    LogPipe pipe;
    std::optional<Log> log(std::in_place, config::LogOptions{}, pipe.ends[1]);
    for (std::size_t i = 0; i != lines; ++i) spdlog::info("line {}.", i);
    std::string said;
    std::atomic<bool> has_all{false};
    std::thread reader([&] {
        const std::string last = "line " + std::to_string(lines - 1) + ".\n";
        for (std::string piece; !(piece = pipe.piece()).empty();) {
            said += piece;
            if (said.ends_with(last)) has_all = true;
        }
    });
    // The end of the log waits one second for a reader, which this machine may not run meanwhile.
    // There is room for one line.
    while (!has_all) std::this_thread::yield();
    spdlog::info("line {}.", lines);
    log.reset();
    ::close(std::exchange(pipe.ends[1], -1));
    reader.join();
    // There may be several such lines, because lines can be dropped before the pipe is full.
    std::size_t gaps = 0;
    std::size_t left_out = 0;
    for (std::size_t at = 0; (at = said.find("log: ", at)) != std::string::npos; at += 5) {
        ++gaps;
        left_out += std::stoul(said.substr(at + 5));
    }
    REQUIRE(gaps != 0);
    CHECK(left_out + count(said, "info: line ") == lines + 1);
    CHECK(count(said, " dropped because standard error was blocked\n") == gaps);
    CHECK(said.ends_with(" info: line " + std::to_string(lines) + ".\n"));
    CHECK(count(said, "\n") == count(said, "info: line ") + gaps);
}

TEST_CASE("log: another process fills the pipe") {
    LogPipe pipe;
    const std::string all(4096, 'x');
    REQUIRE(::write(pipe.ends[1], all.data(), all.size()) == 4096);
    {
        const Log log({}, pipe.ends[1]);
        spdlog::info("never read");
    }
    ::close(std::exchange(pipe.ends[1], -1));
    CHECK(pipe.rest() == all);
}

TEST_CASE("log: the reader has closed the pipe") {
    LogPipe pipe;
    ::close(std::exchange(pipe.ends[0], ::open("/dev/null", O_RDONLY)));
    const Log log({}, pipe.ends[1]);
    for (int i = 0; i != 100; ++i) spdlog::info("to nobody");
}

TEST_CASE("client lines: ten a second after a burst, and the omitted lines are counted") {
    using std::chrono::milliseconds;
    LineLimit limit;
    int calls = 0;
    limit.when_omitted([&] { ++calls; });
    LineLimit::Clock::time_point now = LineLimit::Clock::now();
    const auto take = [&](int wanted) {
        int taken = 0;
        for (int i = 0; i != wanted; ++i) taken += limit.take(now) ? 1 : 0;
        return taken;
    };
    CHECK(take(150) == 150);
    CHECK(calls == 0);
    CHECK(take(1000) == 50);
    CHECK(calls == 1);
    CHECK(limit.take_omitted() == 950);
    CHECK(limit.take_omitted() == 0);
    now += milliseconds(99);
    CHECK(take(1) == 0);
    now += milliseconds(1);
    CHECK(take(2) == 1);
    CHECK(calls == 2);
    now += milliseconds(1000);
    CHECK(take(100) == 10);
    CHECK(limit.take_omitted() == 92);
    now += std::chrono::hours(1000);
    CHECK(take(1000) == 200);
    limit.when_omitted(nullptr);
    CHECK(take(1) == 0);
    CHECK(calls == 3);
}

TEST_CASE("client lines: other lines are not limited") {
    const CapturedLog log(level_enum::info);
    for (int i = 0; i != 500; ++i) {
        LogLine(level_enum::warn).log("the operator's");
        ClientLine(level_enum::info).log("a client's");
        ClientLine(level_enum::debug).log("not logged, and not counted");
    }
    log_omitted_lines(client_lines());
    std::size_t operators = 0;
    std::size_t clients = 0;
    const auto lines = log.lines(config::LogFormat::text);
    for (const std::string& line : lines) {
        operators += count(line, "operator");
        clients += count(line, "a client's");
    }
    CHECK(operators == 500);
    CHECK(clients >= 200);
    CHECK(clients < 400);
    CHECK(count(lines.back(), std::to_string(500 - clients) +
                                  " lines about clients were left out: more than 10 a second") ==
          1);
}

TEST_CASE("log: lines below the level are not written, with fields or without") {
    const CapturedLog log(level_enum::warn);
    LogLine(level_enum::info).with("peer", "x").with("bytes", 1).with("seconds", 0.5).log("no");
    LogLine(level_enum::err).log("yes");
    CHECK(log.lines(config::LogFormat::text).size() == 1);
}

}  // namespace
}  // namespace gpunbd::server::test
