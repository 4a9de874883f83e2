// Responses of servers: valid ones, those of other versions, and malicious ones.
#include "server/tools/status/snapshot.hpp"

#include "server/tools/status/status_text.hpp"
#include "tests/server/tools/status/sample.hpp"
#include "tests/test.hpp"

namespace gpunbd::status {
namespace {

const Snapshot& good(const Expected<Snapshot, Failure>& read) {
    CAPTURE((read ? std::string() : read.error().text));
    REQUIRE(read.has_value());
    return *read;
}

std::string why(const Expected<Snapshot, Failure>& read) { return read ? "" : read.error().text; }

TEST_CASE("a status is parsed completely") {
    const auto read = read_status(sample_status());
    const Snapshot& status = good(read);
    CHECK(status.process.version == "0.1.0");
    CHECK(status.process.pid == 4711);
    CHECK(status.refused == 3);
    CHECK(status.failed_handshakes == 4);
    REQUIRE(status.devices.size() == 2);
    CHECK(status.devices[0].id == "cuda:0");
    CHECK(status.devices[1].failed);
    REQUIRE(status.exports.size() == 2);
    CHECK(status.exports[0].name == "fast");
    CHECK(status.exports[0].total(&RequestFigures::requests) == 30);
    CHECK(status.exports[0].total(&RequestFigures::errors) == 5);
    CHECK(status.exports[0].bytes_of("read") == 1 << 20);
    CHECK(status.exports[0].last_p50 == doctest::Approx(0.0002));
    CHECK(status.exports[0].last_p99 == doctest::Approx(0.02));
    CHECK(status.exports[0].stalled == 0);
    REQUIRE(status.progress.size() == 1);
    CHECK(progress_text(status.progress[0]) == "provisioning fast: 25%, 1 GiB of 4 GiB");
    CHECK(progress_text({.what = "restoring", .of = "export 'a'", .total = 4, .unit = "pages"}) ==
          "restoring export 'a': 0%, 0 pages of 4 pages");
}

TEST_CASE("missing values and values of another type count as zero") {
    for (const char* text :
         {R"({"process":{},"devices":[],"exports":[]})",
          R"({"process":{"pid":-1,"version":7,"started":"x","workers":1.5},"devices":[7,null,"x"],
              "exports":[[],{}],"progress":{},"refused":[1],"time":1e999,"connections":"many"})",
          R"({"process":{"pid":1e300},"devices":[{"total":-5,"failed":"yes","id":null}],
              "exports":[{"name":{},"requests":[{"type":"read","errors":{"EIO":-1,"x":[]},
              "latency":[]}],"memory":[{}],"size":1.0e400}],"time":-1})"}) {
        CAPTURE(text);
        const auto read = read_status(text);
        const Snapshot& status = good(read);
        CHECK(status.time >= 0);
        CHECK(status.connections == 0);
        CHECK(status.refused == 0);
        CHECK_FALSE(status_text(status).empty());
    }
}

TEST_CASE("invalid status responses are rejected") {
    for (const char* text :
         {"", "{", "nonsense", "{}}", "\xff", "{\"process\":{\"version\":\"\xff\"}}"}) {
        CAPTURE(text);
        CHECK(why(read_status(text)) == "the response is not JSON");
    }
    CHECK(why(read_status(std::string(100'000, '['))) == "the response is not JSON");
    for (const char* text :
         {"{}", "[]", "7", "null", R"({"process":7,"devices":[],"exports":[]})",
          R"({"process":{},"devices":{},"exports":[]})", R"({"process":{},"devices":[]})"}) {
        CAPTURE(text);
        CHECK(why(read_status(text)) == "the response is not the status of a gpunbd server");
    }
}

TEST_CASE("a status that is truncated at any byte is rejected") {
    const std::string whole = sample_status();
    for (std::size_t end = 0; end != whole.size(); ++end) {
        CHECK(!(read_status(whole.substr(0, end))));
    }
}

TEST_CASE("sums of untrusted counts do not overflow") {
    const std::string most = std::to_string(std::numeric_limits<std::uint64_t>::max());
    const auto read = read_status(
        R"({"process":{},"devices":[],"exports":[{"requests":[{"requests":)" + most +
        R"(},{"requests":)" + most + R"(}]}],"refused":{"a":)" + most + R"(,"b":)" + most + "}}");
    CHECK(good(read).refused == std::numeric_limits<std::uint64_t>::max());
    CHECK(good(read).exports[0].total(&RequestFigures::requests) ==
          std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("a tick consists of a status and connections") {
    const auto tick = read_tick(sample_tick(100, 0));
    REQUIRE(tick.has_value());
    CHECK(tick->connections.size() == 2);
    CHECK(tick->connections[0].peer == "10.1.2.3:4567");
    CHECK(tick->connections[1].export_name == "(handshake)");
    CHECK(tick->connections_left_out == 7);
    CHECK(!(read_tick("{}")));
    CHECK(!(read_tick(R"({"status":[]})")));
    CHECK(!(read_connections("{}")));
    CHECK(!(read_connections("")));
}

TEST_CASE("error messages are read and sanitized") {
    CHECK(read_error(R"({"error":"no such\u001b[31m export"})") == "no such?[31m export");
    CHECK(read_error("{}") == "");
    CHECK(read_error("<html>") == "");
}

TEST_CASE("status has a row for each device and export, and no control characters") {
    std::string text = sample_status();
    text.replace(text.find("slow"), 4, "\\u001b[2J\xe6\xbc\xa2");
    const auto read = read_status(text);
    const std::string printed = status_text(good(read));
    CAPTURE(printed);
    CHECK(
        printed.starts_with("gpunbd 0.1.0 (abc1234), pid 4711, serving for 1h00: 2 workers, 2 "
                            "connections, 3 refused, 4 failed handshakes\n"));
    CHECK(contains(printed, "?[2J\xe6\xbc\xa2 "));
    CHECK(printed.find('\x1b') == std::string::npos);
    CHECK(contains(printed, "NVIDIA H200\n"));
    CHECK(contains(printed, "host memory (failed)\n"));
    CHECK(contains(printed, "fast "));
    CHECK(contains(printed,
                   "WITHOUT EXPORT   SIZE   USED    OWN  ALLOCATED  STATE\n"
                   "gone            1 GiB  8 MiB  4 MiB     64 MiB  no export has them; freed "
                   "in 4m59\n"));
}

TEST_CASE("status counts the stalled clients of an export beside its connections") {
    const auto stalled = read_status(sample_status(1'700'003'600, 0, 2));
    CHECK(contains(status_text(good(stalled)), " 1 (2 stalled) "));
    const auto none = read_status(sample_status());
    CHECK_FALSE(contains(status_text(good(none)), "stalled"));
}

TEST_CASE("status has the times of requests to an origin, by operation") {
    const auto text_with = [](const std::string& requests) {
        const auto read = read_status(
            R"({"process":{},"devices":[],"exports":[{"name":"disk","origins":[{"path":"/srv/a.img",
                "requests":[)" +
            requests + "]}]}]}");
        return status_text(good(read));
    };
    const std::string reads =
        R"({"operation":"read","count":9,"p50":0.0012,"p99":0.025,"longest":1.5})";
    const std::string writes =
        R"({"operation":"write","count":1,"p50":0.00085,"p99":0.00085,"longest":0.00085})";
    CHECK(text_with(reads).ends_with(
        "\ndisk requests of /srv/a.img: read p50 1.2ms, p99 25ms, longest 1.5s\n"));
    CHECK(text_with(reads + "," + writes)
              .ends_with(", longest 1.5s; write p50 850us, p99 850us, longest 850us\n"));
    CHECK(text_with("").ends_with(", 0 errors\n"));
}

}  // namespace
}  // namespace gpunbd::status
