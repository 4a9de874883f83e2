#include "storage/devices/gpu/copy_path.hpp"

#include "tests/test.hpp"

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

constexpr std::uint64_t device_place = 0x7000'0000'0000;

std::vector<CopyUnit> units_in(const Copy& copy) {
    std::vector<CopyUnit> units;
    cut_into_units(copy, [&](const CopyUnit& unit) { units.push_back(unit); });
    return units;
}

TEST_CASE("units of a copy: as few as possible, and the last one has the remainder") {
    constexpr struct {
        std::uint32_t length;
        std::uint32_t units;
        std::uint32_t last;
    } rows[] = {
        {1, 1, 1},
        {copy_unit_bytes - 1, 1, copy_unit_bytes - 1},
        {copy_unit_bytes, 1, copy_unit_bytes},
        {copy_unit_bytes + 1, 2, 1},
        {128 * copy_unit_bytes, 128, copy_unit_bytes},
        {128 * copy_unit_bytes + 5, 129, 5},
    };
    for (const auto& row : rows) {
        CAPTURE(row.length);
        Copy copy;
        copy.length = row.length;
        copy.address = device_place;
        CHECK(units_of(copy) == row.units);
        const std::vector<CopyUnit> units = units_in(copy);
        REQUIRE(units.size() == row.units);
        for (std::uint32_t i = 0; i + 1 < row.units; ++i) CHECK(units[i].length == copy_unit_bytes);
        CHECK(units.back().length == row.last);
    }
}

TEST_CASE("units of a copy: reads have the device as source, writes as destination") {
    std::array<std::byte, 2 * copy_unit_bytes> staging{};
    auto* const device = reinterpret_cast<std::byte*>(device_place);
    Copy copy;
    copy.length = staging.size();
    copy.address = device_place;
    for (const Copy::Kind kind : {Copy::Kind::read, Copy::Kind::write, Copy::Kind::zero}) {
        CAPTURE(static_cast<int>(kind));
        copy.kind = kind;
        copy.staging = kind == Copy::Kind::zero ? nullptr : staging.data();
        const std::vector<CopyUnit> units = units_in(copy);
        REQUIRE(units.size() == 2);
        for (std::size_t i = 0; i != 2; ++i) {
            std::byte* const there = device + i * copy_unit_bytes;
            std::byte* const here =
                kind == Copy::Kind::zero ? nullptr : staging.data() + i * copy_unit_bytes;
            CHECK(units[i].from == (kind == Copy::Kind::read ? there : here));
            CHECK(units[i].to == (kind == Copy::Kind::read ? here : there));
        }
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
