#include "server/net/transport/receive_buffer.hpp"

#include "tests/storage/random.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("receive buffer: makes room at its end by moving its contents to the front") {
    ReceiveBuffer buffer;
    CHECK(buffer.bytes().empty());
    CHECK(buffer.room(100).size() == 100);
    CHECK(buffer.room(ReceiveBuffer::capacity + 1).size() == ReceiveBuffer::capacity);
    const auto all = buffer.room(ReceiveBuffer::capacity);
    std::fill(all.begin(), all.end(), std::byte{1});
    buffer.received(all.size());
    CHECK(buffer.bytes().size() == ReceiveBuffer::capacity);
    CHECK(buffer.room(1).empty());
    buffer.consume(ReceiveBuffer::capacity - 10);
    CHECK(buffer.bytes().size() == 10);
    const auto room = buffer.room(100);
    CHECK(room.size() == 100);
    CHECK(room.data() == buffer.bytes().data() + 10);
    CHECK(buffer.room(ReceiveBuffer::capacity).size() == ReceiveBuffer::capacity - 10);
    buffer.consume(10);
    CHECK(buffer.room(ReceiveBuffer::capacity).size() == ReceiveBuffer::capacity);
}

TEST_CASE("receive buffer: returns the bytes in the order of arrival") {
    storage::test::Random random(3);
    ReceiveBuffer buffer;
    std::vector<std::byte> in;
    std::size_t out = 0;
    for (int i = 0; i != 3000; ++i) {
        const auto room = buffer.room(1 + random.below(random.one_in(10) ? 300 * 1024 : 3000));
        const std::size_t count = std::min<std::size_t>(room.size(), random.below(200 * 1024));
        for (std::size_t at = 0; at != count; ++at) {
            room[at] = static_cast<std::byte>(random.one_in(50) ? at * 7 : at + count);
        }
        in.insert(in.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(count));
        buffer.received(count);
        const auto bytes = buffer.bytes();
        REQUIRE(bytes.size() == in.size() - out);
        REQUIRE(std::equal(bytes.begin(), bytes.end(), in.begin() + std::ptrdiff_t(out)));
        const std::size_t used = random.below(static_cast<std::uint32_t>(bytes.size() + 1));
        buffer.consume(used);
        out += used;
        if (in.size() > 8 << 20) {
            in.erase(in.begin(), in.begin() + std::ptrdiff_t(out));
            out = 0;
        }
    }
}

}  // namespace
}  // namespace gpunbd::server::test
