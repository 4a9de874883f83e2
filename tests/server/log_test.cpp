#include "server/process/log.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <ctime>
#include <string>

#include "kept_log.hpp"
#include "storage/log_line.hpp"

namespace gpunbd::server::test {
namespace {

using namespace std::string_literals;
using spdlog::level::level_enum;
using storage::LogLine;

// Half an hour is in it, so that hours alone will not do.
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
        std::string text;  // behind the time
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
                 .say("{} said {}", "it", 7);
         },
         "warning: it said 7",
         R"("level":"warning","message":"it said 7","peer":"127.0.0.1:1","bytes":18446744073709551615,"seconds":1.500,"offset":-1)"},
        {"fields and no text", [] { LogLine(level_enum::info).with("export", "").say(""); },
         "info: ", R"("level":"info","message":"","export":"")"},
        {"quotes and backslashes",
         [] { LogLine(level_enum::err).with("export", R"(a"b\c)").say(R"("\)"); }, R"(error: "\)",
         R"("level":"error","message":"\"\\","export":"a\"b\\c")"},
        {"control characters",
         [] { LogLine(level_enum::info).with("export", "\x1b[31m\t\0\x7f"s).say("\x1b\r\x7f"); },
         "info: ???",
         R"("level":"info","message":"\u001b\u000d\u007f","export":"\u001b[31m\u0009\u0000\u007f")"},
        {"several lines", [] { spdlog::info("trace\nREAD\n"); }, "info: trace\nREAD\n",
         R"("level":"info","message":"trace\nREAD\n")"},
        {"UTF-8", [] { LogLine(level_enum::info).with("export", "größe €").say("größe"); },
         "info: größe", R"("level":"info","message":"größe","export":"größe €")"},
        {"no UTF-8", [] { LogLine(level_enum::info).with("export", "a\xff\xe2\x82").say("\xc0z"); },
         "info: \xc0z",
         "\"level\":\"info\",\"message\":\"\ufffdz\",\"export\":\"a\ufffd\ufffd\ufffd\""},
        {"a message that looks like fields", [] { spdlog::error("{}", "a\",\"export\":\"b"); },
         "error: a\",\"export\":\"b", R"("level":"error","message":"a\",\"export\":\"b")"},
        {"the longest value",
         [] { LogLine(level_enum::info).with("export", std::string(1024, 'x')).say(""); },
         "info: ", R"("level":"info","message":"","export":")" + std::string(1024, 'x') + '"'},
        {"a longer value",
         [] { LogLine(level_enum::info).with("export", std::string(5000, 'x')).say(""); },
         "info: ", R"("level":"info","message":"","export":")" + std::string(1024, 'x') + "...\""},
        {"one that would be cut within a character",
         [] { LogLine(level_enum::info).with("export", std::string(1023, 'x') + "€€").say(""); },
         "info: ", R"("level":"info","message":"","export":")" + std::string(1023, 'x') + "...\""},
        {"critical", [] { LogLine(level_enum::critical).with("device", "cuda:0").say("lost"); },
         "critical: lost", R"("level":"critical","message":"lost","device":"cuda:0")"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.name);
        const KeptLog log(level_enum::info);
        row.log();
        const auto text = log.lines(config::LogFormat::text);
        const auto json = log.lines(config::LogFormat::json);
        REQUIRE(text.size() == 1);
        REQUIRE(json.size() == 1);
        CHECK(text[0] == "2026-11-22 01:50:42.123 +0530 " + row.text + '\n');
        CHECK(json[0] == R"({"time":"2026-11-22T01:50:42.123+05:30",)" + row.json + "}\n");
    }
}

TEST_CASE("log: what is below its level is not written, with fields or without") {
    const KeptLog log(level_enum::warn);
    LogLine(level_enum::info).with("peer", "x").with("bytes", 1).with("seconds", 0.5).say("no");
    LogLine(level_enum::err).say("yes");
    CHECK(log.lines(config::LogFormat::text).size() == 1);
}

}  // namespace
}  // namespace gpunbd::server::test
