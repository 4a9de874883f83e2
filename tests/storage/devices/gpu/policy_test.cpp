#include "storage/devices/gpu/policy.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr Policy::Features everything{.mapping = true, .persistent_kernel = true};
constexpr Policy::Features no_mapping{.mapping = false, .persistent_kernel = true};
constexpr Policy::Features no_persistent{.mapping = true, .persistent_kernel = false};
constexpr Policy::Features nothing{};
constexpr Policy::Features engines{
    .mapping = true, .kernels = false, .persistent_kernel = true, .engine_batch = true};
constexpr Policy::Features old_driver{.mapping = true, .kernels = false, .engine_batch = false};

TEST_CASE("policy: the choices of the default policy") {
    constexpr struct {
        Direction direction;
        Load load;
        std::uint32_t bytes;
        Policy::Features means;
        PathKind path;
    } rows[] = {
        {Direction::read, Load::alone, 1, everything, PathKind::streaming_load},
        {Direction::read, Load::several, kib, everything, PathKind::streaming_load},
        {Direction::read, Load::alone, kib, no_mapping, PathKind::persistent_kernel},
        {Direction::read, Load::alone, kib + 1, everything, PathKind::persistent_kernel},
        {Direction::read, Load::alone, 256 * kib, everything, PathKind::persistent_kernel},
        {Direction::read, Load::alone, 256 * kib + 1, everything, PathKind::copy_engine},
        {Direction::read, Load::alone, 4 * kib, no_persistent, PathKind::copy_engine},
        {Direction::read, Load::busy, 32 * kib, everything, PathKind::persistent_kernel},
        {Direction::read, Load::busy, 32 * kib + 1, everything, PathKind::kernel},
        {Direction::read, Load::several, 4 * kib, no_persistent, PathKind::kernel},
        {Direction::read, Load::several, kib, nothing, PathKind::kernel},
        {Direction::read, Load::several, 256 * kib, everything, PathKind::kernel},
        {Direction::read, Load::several, 256 * kib + 1, everything, PathKind::copy_engine},
        {Direction::read, Load::several, kib, engines, PathKind::streaming_load},
        {Direction::read, Load::several, 4 * kib, engines, PathKind::engine_batch},
        {Direction::read, Load::alone, 4 * kib, engines, PathKind::copy_engine},
        {Direction::read, Load::busy, 4 * kib, engines, PathKind::copy_engine},
        {Direction::read, Load::several, 256 * kib + 1, engines, PathKind::copy_engine},
        {Direction::read, Load::several, 4 * kib, old_driver, PathKind::copy_engine},
        {Direction::zero, Load::several, 128 * kib, engines, PathKind::engine_batch},
        {Direction::write, Load::alone, max_for_mapping, everything, PathKind::mapping},
        {Direction::write, Load::several, 4 * kib, everything, PathKind::mapping},
        {Direction::write, Load::alone, max_for_mapping + 1, everything, PathKind::copy_engine},
        {Direction::write, Load::alone, 4 * kib, no_mapping, PathKind::persistent_kernel},
        {Direction::write, Load::busy, 64 * kib, no_mapping, PathKind::kernel},
        {Direction::write, Load::alone, 4 * kib, nothing, PathKind::copy_engine},
        {Direction::zero, Load::several, 64 * kib, everything, PathKind::mapping},
        {Direction::zero, Load::alone, 128 * kib, everything, PathKind::persistent_kernel},
        {Direction::zero, Load::alone, 128 * kib + 1, everything, PathKind::copy_engine},
        {Direction::zero, Load::busy, 128 * kib, everything, PathKind::kernel},
        {Direction::zero, Load::busy, Policy::any_size, everything, PathKind::copy_engine},
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

TEST_CASE("policy: the first matching row decides, and the default is the copy engine") {
    const Policy none;
    CHECK(none.choose(Direction::read, Load::alone, 1, everything) == PathKind::copy_engine);
    CHECK(none.max_for_kernel() == 0);
    const Policy policy{{{Direction::read, Policy::on(Load::busy), 100, PathKind::kernel},
                         {Direction::read, Policy::any_load, 100, PathKind::streaming_load},
                         {Direction::read, Policy::any_load, 200, PathKind::persistent_kernel}}};
    CHECK(policy.choose(Direction::read, Load::busy, 100, everything) == PathKind::kernel);
    CHECK(policy.choose(Direction::read, Load::alone, 100, everything) == PathKind::streaming_load);
    CHECK(policy.choose(Direction::read, Load::alone, 101, everything) ==
          PathKind::persistent_kernel);
    CHECK(policy.choose(Direction::read, Load::alone, 201, everything) == PathKind::copy_engine);
    CHECK(policy.choose(Direction::write, Load::busy, 100, everything) == PathKind::copy_engine);
    CHECK(policy.max_for_kernel() == 200);
}

TEST_CASE("policy: a single path is used as far as it supports copies") {
    constexpr struct {
        PathKind path;
        PathKind read, write;  // the expected choices
    } rows[] = {
        {PathKind::mapping, PathKind::copy_engine, PathKind::mapping},
        {PathKind::streaming_load, PathKind::streaming_load, PathKind::copy_engine},
        {PathKind::copy_engine, PathKind::copy_engine, PathKind::copy_engine},
        {PathKind::engine_batch, PathKind::copy_engine, PathKind::copy_engine},
        {PathKind::kernel, PathKind::kernel, PathKind::kernel},
        {PathKind::persistent_kernel, PathKind::persistent_kernel, PathKind::persistent_kernel},
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
    CHECK(only(PathKind::engine_batch).choose(Direction::write, Load::alone, 1, engines) ==
          PathKind::engine_batch);
    // Without a persistent kernel, a plain kernel is the closest path.
    CHECK(only(PathKind::persistent_kernel).choose(Direction::read, Load::alone, 1, nothing) ==
          PathKind::kernel);
}

TEST_CASE("policy: prints its rows as text") {
    const Policy policy{
        {{Direction::read, Policy::any_load, 1000, PathKind::streaming_load},
         {Direction::write, Policy::on(Load::alone), 4096, PathKind::persistent_kernel},
         {Direction::zero,
          static_cast<std::uint8_t>(Policy::on(Load::busy) | Policy::on(Load::several)),
          Policy::any_size, PathKind::copy_engine}}};
    CHECK(to_text(policy) ==
          "read   any                    <= 1000 B    streaming load\n"
          "write  alone                  <= 4 KiB     persistent kernel\n"
          "zero   engines busy, several  any size     copy engine\n");
}

}  // namespace
}  // namespace gpunbd::storage::test
