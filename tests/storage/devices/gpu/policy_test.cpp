#include "storage/devices/gpu/policy.hpp"
#include "tests/storage/sizes.hpp"

#include <doctest/doctest.h>

namespace gpunbd::storage::test {
namespace {

constexpr Policy::Means everything{.mapping = true, .persistent_kernel = true};
constexpr Policy::Means no_mapping{.mapping = false, .persistent_kernel = true};
constexpr Policy::Means no_persistent{.mapping = true, .persistent_kernel = false};
constexpr Policy::Means nothing{};
constexpr Policy::Means engines{
    .mapping = true, .kernels = false, .persistent_kernel = true, .engine_batch = true};
constexpr Policy::Means old_driver{.mapping = true, .kernels = false, .engine_batch = false};

TEST_CASE("policy: the default's choices") {
    constexpr struct {
        Direction direction;
        Load load;
        std::uint32_t bytes;
        Policy::Means means;
        CopyPath path;
    } rows[] = {
        {Direction::read, Load::alone, 1, everything, CopyPath::streaming_load},
        {Direction::read, Load::several, kib, everything, CopyPath::streaming_load},
        {Direction::read, Load::alone, kib, no_mapping, CopyPath::persistent_kernel},
        {Direction::read, Load::alone, kib + 1, everything, CopyPath::persistent_kernel},
        {Direction::read, Load::alone, 256 * kib, everything, CopyPath::persistent_kernel},
        {Direction::read, Load::alone, 256 * kib + 1, everything, CopyPath::copy_engine},
        {Direction::read, Load::alone, 4 * kib, no_persistent, CopyPath::copy_engine},
        {Direction::read, Load::busy, 32 * kib, everything, CopyPath::persistent_kernel},
        {Direction::read, Load::busy, 32 * kib + 1, everything, CopyPath::kernel},
        {Direction::read, Load::several, 4 * kib, no_persistent, CopyPath::kernel},
        {Direction::read, Load::several, kib, nothing, CopyPath::kernel},
        {Direction::read, Load::several, 256 * kib, everything, CopyPath::kernel},
        {Direction::read, Load::several, 256 * kib + 1, everything, CopyPath::copy_engine},
        {Direction::read, Load::several, kib, engines, CopyPath::streaming_load},
        {Direction::read, Load::several, 4 * kib, engines, CopyPath::engine_batch},
        {Direction::read, Load::alone, 4 * kib, engines, CopyPath::copy_engine},
        {Direction::read, Load::busy, 4 * kib, engines, CopyPath::copy_engine},
        {Direction::read, Load::several, 256 * kib + 1, engines, CopyPath::copy_engine},
        {Direction::read, Load::several, 4 * kib, old_driver, CopyPath::copy_engine},
        {Direction::zero, Load::several, 128 * kib, engines, CopyPath::engine_batch},
        {Direction::write, Load::alone, max_for_mapping, everything, CopyPath::mapping},
        {Direction::write, Load::several, 4 * kib, everything, CopyPath::mapping},
        {Direction::write, Load::alone, max_for_mapping + 1, everything, CopyPath::copy_engine},
        {Direction::write, Load::alone, 4 * kib, no_mapping, CopyPath::persistent_kernel},
        {Direction::write, Load::busy, 64 * kib, no_mapping, CopyPath::kernel},
        {Direction::write, Load::alone, 4 * kib, nothing, CopyPath::copy_engine},
        {Direction::zero, Load::several, 64 * kib, everything, CopyPath::mapping},
        {Direction::zero, Load::alone, 128 * kib, everything, CopyPath::persistent_kernel},
        {Direction::zero, Load::alone, 128 * kib + 1, everything, CopyPath::copy_engine},
        {Direction::zero, Load::busy, 128 * kib, everything, CopyPath::kernel},
        {Direction::zero, Load::busy, Policy::any_size, everything, CopyPath::copy_engine},
    };
    const Policy policy = default_policy();
    for (const auto& row : rows) {
        CAPTURE(static_cast<int>(row.direction));
        CAPTURE(static_cast<int>(row.load));
        CAPTURE(row.bytes);
        CHECK(to_text(policy.choose(row.direction, row.load, row.bytes, row.means)) ==
              std::string_view(to_text(row.path)));
    }
}

TEST_CASE("policy: the first row that fits decides, and with none the copy engines") {
    const Policy none;
    CHECK(none.choose(Direction::read, Load::alone, 1, everything) == CopyPath::copy_engine);
    CHECK(none.max_for_kernel() == 0);
    const Policy policy{{{Direction::read, Policy::on(Load::busy), 100, CopyPath::kernel},
                         {Direction::read, Policy::any_load, 100, CopyPath::streaming_load},
                         {Direction::read, Policy::any_load, 200, CopyPath::persistent_kernel}}};
    CHECK(policy.choose(Direction::read, Load::busy, 100, everything) == CopyPath::kernel);
    CHECK(policy.choose(Direction::read, Load::alone, 100, everything) == CopyPath::streaming_load);
    CHECK(policy.choose(Direction::read, Load::alone, 101, everything) ==
          CopyPath::persistent_kernel);
    CHECK(policy.choose(Direction::read, Load::alone, 201, everything) == CopyPath::copy_engine);
    CHECK(policy.choose(Direction::write, Load::busy, 100, everything) == CopyPath::copy_engine);
    CHECK(policy.max_for_kernel() == 200);
}

TEST_CASE("policy: one path only, as far as it goes") {
    constexpr struct {
        CopyPath path;
        CopyPath read, write;  // what is chosen
    } rows[] = {
        {CopyPath::mapping, CopyPath::copy_engine, CopyPath::mapping},
        {CopyPath::streaming_load, CopyPath::streaming_load, CopyPath::copy_engine},
        {CopyPath::copy_engine, CopyPath::copy_engine, CopyPath::copy_engine},
        {CopyPath::engine_batch, CopyPath::copy_engine, CopyPath::copy_engine},
        {CopyPath::kernel, CopyPath::kernel, CopyPath::kernel},
        {CopyPath::persistent_kernel, CopyPath::persistent_kernel, CopyPath::persistent_kernel},
    };
    for (const auto& row : rows) {
        CAPTURE(std::string(to_text(row.path)));
        const Policy policy = only(row.path);
        for (const Load load : {Load::alone, Load::busy, Load::several}) {
            for (const std::uint32_t bytes : {1U, Policy::any_size}) {
                CHECK(policy.choose(Direction::read, load, bytes, everything) == row.read);
                CHECK(policy.choose(Direction::write, load, bytes, everything) == row.write);
                CHECK(policy.choose(Direction::zero, load, bytes, everything) == row.write);
            }
        }
    }
    CHECK(only(CopyPath::engine_batch).choose(Direction::write, Load::alone, 1, engines) ==
          CopyPath::engine_batch);
    // Where there is no persistent kernel, the nearest to it.
    CHECK(only(CopyPath::persistent_kernel).choose(Direction::read, Load::alone, 1, nothing) ==
          CopyPath::kernel);
}

TEST_CASE("policy: people can read it") {
    const Policy policy{
        {{Direction::read, Policy::any_load, 1000, CopyPath::streaming_load},
         {Direction::write, Policy::on(Load::alone), 4096, CopyPath::persistent_kernel},
         {Direction::zero,
          static_cast<std::uint8_t>(Policy::on(Load::busy) | Policy::on(Load::several)),
          Policy::any_size, CopyPath::copy_engine}}};
    CHECK(to_text(policy) ==
          "read   any                    <= 1000 B    streaming load\n"
          "write  alone                  <= 4 KiB     persistent kernel\n"
          "zero   engines busy, several  any size     copy engine\n");
}

}  // namespace
}  // namespace gpunbd::storage::test
