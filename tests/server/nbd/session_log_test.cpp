// The log lines of a session about failed requests and about its end.
#include <regex>

#include "tests/server/captured_log.hpp"
#include "tests/server/rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("session: a failed request is logged with command, export, offset and device") {
    struct Row {
        bool no_memory;
        std::string_view devices;
        Ask ask;
        const char* text;
        const char* json;
    };
    const Row rows[] = {
        {false,
         "s",
         {CommandType::write, 8192, 4096},
         "export '': WRITE of 4 KiB at offset 8192 failed: EIO: an error of memory:0\n",
         R"("export":"","request":"WRITE","offset":8192,"length":4096,"error":"EIO","device":"memory:0","unreported":0})"},
        {false,
         "s",
         {CommandType::read, 0, 1024},
         "export '': READ of 1 KiB at offset 0 failed: EIO: an error of memory:0\n",
         R"("export":"","request":"READ","offset":0,"length":1024,"error":"EIO","device":"memory:0","unreported":0})"},
        {false,
         "s",
         {CommandType::trim, 1, 100},
         "export '': TRIM of 100 bytes at offset 1 failed: EIO: an error of memory:0\n",
         R"("request":"TRIM","offset":1,"length":100,"error":"EIO","device":"memory:0")"},
        {true,
         "ss",
         {CommandType::write, 65536, 1},
         "export '': WRITE of 1 byte at offset 65536 failed: ENOSPC: no space left on "
         "memory:0, memory:1\n",
         R"("request":"WRITE","offset":65536,"length":1,"error":"ENOSPC","device":"memory:0, memory:1")"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.text);
        const CapturedLog log(spdlog::level::warn);
        {
            Rig rig({.devices = row.devices});
            Client client = rig.enter();
            if (row.no_memory) {
                rig.script.allocations_until_failure = 0;
            } else {
                CHECK(client.ask({CommandType::write, 0, 32 * kib}).error == Error::none);
                rig.script.copies_until_failure = 0;
            }
            CHECK(client.ask(row.ask).error != Error::none);
        }
        const auto text = log.lines(config::LogFormat::text);
        const auto json = log.lines(config::LogFormat::json);
        REQUIRE(text.size() == 1);
        CAPTURE(text[0]);
        CAPTURE(json[0]);
        CHECK(text[0].ends_with(row.text));
        CHECK(contains(json[0], row.json));
        CHECK(contains(json[0], R"("level":"warning")"));
    }
}

TEST_CASE("session: repeated failures are logged once, with the number of suppressed lines") {
    const CapturedLog log(spdlog::level::warn);
    {
        Rig rig;
        Client client = rig.enter();
        rig.script.allocations_until_failure = 0;
        for (int i = 0; i != 50; ++i) {
            CHECK(client.ask({CommandType::write, 0, 4096}).error == Error::enospc);
        }
    }
    CHECK(log.lines(config::LogFormat::text).size() < 50);
}

TEST_CASE("session: logs one line of level info at its end") {
    const CapturedLog log(spdlog::level::info);
    {
        Rig rig;
        Client client = rig.enter();
        client.ask({CommandType::write, 0, 3 * kib / 2});
        client.ask({CommandType::read, 0, 100});
        client.disconnect();
        rig.check_over();
    }
    const auto text = log.lines(config::LogFormat::text);
    const auto json = log.lines(config::LogFormat::json);
    REQUIRE(text.size() == 1);
    const std::regex text_pattern(
        R"(: export '': 3 requests, 100 bytes read, 1\.5 KiB written; closed after [0-9]+\.[0-9]+ s: )"
        R"(the client disconnected\n$)");
    CHECK(std::regex_search(text[0], text_pattern));
    const std::regex json_pattern(
        R"("export":"","requests":3,"errors":0,"bytes_read":100,"bytes_written":1536,)"
        R"("seconds":[0-9]+\.[0-9]+[,}])");
    CHECK(std::regex_search(json[0], json_pattern));
    CHECK(json[0].ends_with("\"reason\":\"the client disconnected\"}\n"));
}

TEST_CASE("session: refused requests are logged and counted") {
    const CapturedLog log(spdlog::level::info);
    {
        Rig rig;
        Client client = rig.enter();
        for (int i = 0; i != 266; ++i) {
            CHECK(client.ask({CommandType::read, 1 << 30, 512}).error == Error::einval);
        }
        CHECK(client.ask({CommandType::write, 0, 512}).error == Error::none);
        client.disconnect();
        rig.check_over();
    }
    const auto text = log.lines(config::LogFormat::text);
    const auto json = log.lines(config::LogFormat::json);
    REQUIRE(text.size() >= 2);  // one line per second about refusals, and one about the end
    CHECK(contains(text[0], "warning: "));
    CHECK(contains(text[0],
                   ": export '': READ at offset 1073741824 refused: EINVAL: beyond the end"));
    CHECK(contains(json[0], R"("request":"READ","offset":1073741824,"error":"EINVAL")"));
    CHECK(contains(text.back(), "268 requests (266 failed), 0 bytes read, 512 bytes written"));
    CHECK(contains(json.back(), R"("requests":268,"errors":266,)"));
}

// Clients probe for features of the server, and continue without them.
TEST_CASE("session: refusals of feature probes are logged at level debug only") {
    const CapturedLog log(spdlog::level::info);
    {
        Rig rig;
        Client client = rig.enter();
        const auto flags = static_cast<std::uint16_t>(protocol::command_flag::fast_zero |
                                                      protocol::command_flag::no_hole);
        CHECK(client.ask({CommandType::write_zeroes, 0, 512, flags}).error == Error::enotsup);
        client.disconnect();
        rig.check_over();
    }
    const auto text = log.lines(config::LogFormat::text);
    REQUIRE(text.size() == 1);
    CHECK(contains(text[0], "2 requests (1 failed)"));
}

}  // namespace
}  // namespace gpunbd::server::test
