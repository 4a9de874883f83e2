#include "server/nbd/trace.hpp"

#include <sstream>

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using namespace std::chrono_literals;

std::vector<std::string> lines_of(const std::string& table) {
    std::vector<std::string> lines;
    std::istringstream in(table);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

TEST_CASE("trace: the table has 80 columns, also after very long waits") {
    Trace one;
    Trace other;
    one.read.record(1500us);
    other.read.record(2500us);
    other.write.record(15min);
    one.sent.record(123456789ns);
    const std::string table = describe_traces({&one, &other});
    CHECK(table.back() != '\n');
    const auto lines = lines_of(table);
    REQUIRE(lines.size() == 8);
    for (const std::string& line : lines) {
        CAPTURE(line);
        CHECK(line.size() <= 80);
        CHECK(line.size() == line.find_last_not_of(' ') + 1);
    }
    CHECK(lines[0] == "stage            count    p50 us    p90 us    p99 us    max us  waiting");
    CHECK(lines[5] ==
          "sent                 1  123456.8  123456.8  123456.8  123456.8  for the socket");
    CHECK(lines[6] ==
          "READ                 2    2500.0    2500.0    2500.0    2500.0  to be answered");
    CHECK(lines[7] ==
          "WRITE                1 900000000 900000000 900000000 900000000  to be answered");
}

}  // namespace
}  // namespace gpunbd::server::test
