#include "server/daemon/housekeeping.hpp"

#include <doctest/doctest.h>

#include <optional>

namespace gpunbd::server::test {
namespace {

void omit_line(LineLimit& limit) {
    const auto now = LineLimit::Clock::now();
    while (limit.take(now)) {
    }
}

TEST_CASE("OmittedLines: a line that is omitted before the stop starts no timer after it") {
    LineLimit limit;
    boost::asio::io_context io;
    std::optional<OmittedLines> lines(std::in_place, io, limit);
    lines->start();
    omit_line(limit);
    lines->stop();
    SUBCASE("stopped") {}
    SUBCASE("destroyed") { lines.reset(); }
    io.poll();
    CHECK(io.stopped());  // nothing is left to wait for
}

TEST_CASE("OmittedLines: the stop cancels the timer") {
    LineLimit limit;
    boost::asio::io_context io;
    OmittedLines lines(io, limit);
    lines.start();
    omit_line(limit);
    CHECK(io.poll_one() == 1);  // starts the timer; its expiry is a separate handler
    CHECK_FALSE(io.stopped());
    lines.stop();
    io.poll();
    CHECK(io.stopped());
}

}  // namespace
}  // namespace gpunbd::server::test
