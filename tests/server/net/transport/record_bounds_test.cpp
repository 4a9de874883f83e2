#include "server/net/transport/tls_stream.hpp"

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

std::string record(std::size_t length) {
    std::string bytes = "\x17\x03\x03";
    bytes += static_cast<char>(length >> 8);
    bytes += static_cast<char>(length);
    return bytes + std::string(length, 'x');
}

TEST_CASE("record bounds: finds the end of each record in pieces of any length") {
    const std::vector<std::size_t> lengths{1, 0, 17, 255, 256, 16'640, 65'535, 2};
    std::string all;
    for (const std::size_t length : lengths) all += record(length);
    for (const std::size_t piece : {1U, 2U, 3U, 5U, 7U, 1000U, 100'000U}) {
        CAPTURE(piece);
        RecordBounds bounds;
        std::vector<std::size_t> found;
        std::vector<std::size_t> ends;
        for (std::size_t at = 0; at != all.size();) {
            REQUIRE(bounds.left() != 0);
            const std::size_t taken = std::min(piece + 0UL, bounds.left());
            REQUIRE(taken <= all.size() - at);
            const bool over = bounds.take({all.data() + at, taken});
            at += taken;
            if (!over) continue;
            found.push_back(bounds.length());
            ends.push_back(at);
        }
        CHECK(found == lengths);
        std::size_t end = 0;
        for (std::size_t i = 0; i != lengths.size(); ++i) {
            end += RecordBounds::header_size + lengths[i];
            CHECK(ends[i] == end);
        }
    }
}

}  // namespace
}  // namespace gpunbd::server::test
