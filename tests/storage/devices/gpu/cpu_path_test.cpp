#include "storage/devices/gpu/copy_path.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace gpunbd::storage::test {
namespace {

TEST_CASE("CPU path: copies exactly the requested range, and ends immediately") {
    constexpr std::byte old{7};
    constexpr std::byte mine{42};
    for (const std::uint32_t length : {1U, 16U, 63U, 64U, 4096U, 5001U}) {
        for (const std::size_t skew : {0U, 1U, 33U}) {
            CAPTURE(length);
            CAPTURE(skew);
            for (const Copy::Kind kind : {Copy::Kind::read, Copy::Kind::write, Copy::Kind::zero}) {
                CAPTURE(static_cast<int>(kind));
                std::vector<std::byte> device(length + 2 * skew, old);
                std::vector<std::byte> staging(length, mine);
                Copy copy;
                copy.kind = kind;
                copy.length = length;
                copy.cpu = device.data() + skew;
                copy.staging = kind == Copy::Kind::zero ? nullptr : staging.data();
                CpuPath path;
                REQUIRE(path.can_take(copy));
                REQUIRE(path.has_room(copy));
                CHECK(path.add(copy));
                CHECK(copy.status == Status::ok);
                CHECK(path.idle());
                CopyQueue ended;
                CHECK_FALSE(path.take_ended(ended));

                std::vector<std::byte> expected(device.size(), old);
                if (kind != Copy::Kind::read) {
                    const std::byte value = kind == Copy::Kind::write ? mine : std::byte{0};
                    std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(skew), length,
                                value);
                }
                CHECK(device == expected);
                const std::byte kept = kind == Copy::Kind::read ? old : mine;
                CHECK(staging == std::vector<std::byte>(length, kept));
            }
        }
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
