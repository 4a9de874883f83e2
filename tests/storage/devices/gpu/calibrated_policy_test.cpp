#include "storage/devices/gpu/policy.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

std::string policy_of(Direction direction, const std::vector<CopyCosts>& table) {
    Policy policy;
    add_rows(policy, direction, table);
    return to_text(policy);
}

CopyCosts costs(std::uint32_t bytes, std::optional<double> by_cpu, double engine, double kernel,
                double persistent, double engine_crowd, double kernel_crowd,
                double persistent_crowd) {
    return {.bytes = bytes,
            .by_cpu = by_cpu,
            .engine = engine,
            .kernel = kernel,
            .persistent = persistent,
            .engine_crowd = engine_crowd,
            .batch_crowd = {},
            .kernel_crowd = kernel_crowd,
            .persistent_crowd = persistent_crowd};
}

TEST_CASE("calibrated policy: each path is used up to the size at which it wins") {
    // Columns: bytes; alone by CPU, engine, kernel, persistent kernel; the crowd columns.
    const std::vector table{costs(1 * kib, 1.0, 9.0, 6.0, 3.0, 20.0, 8.0, 5.0),
                            costs(4 * kib, 4.0, 9.0, 6.0, 4.0, 20.0, 8.0, 9.0),
                            costs(16 * kib, 16.0, 9.0, 7.0, 5.0, 21.0, 9.0, 9.5),
                            costs(64 * kib, 64.0, 10.0, 11.0, 12.0, 25.0, 15.0, 30.0)};
    CHECK(policy_of(Direction::read, table) ==
          "read   alone                  <= 4 KiB     streaming load\n"
          "read   engines busy, several  <= 4 KiB     streaming load\n"
          "read   alone                  <= 16 KiB    persistent kernel\n"
          "read   engines busy, several  <= 1 KiB     persistent kernel\n"
          "read   alone                  <= 16 KiB    kernel\n"
          "read   engines busy, several  <= 64 KiB    kernel\n"
          "read   any                    any size     copy engine\n");
    // Zeroes are stored through the mapping. Writes are received there at any cost.
    CHECK(policy_of(Direction::zero, table)
              .starts_with("zero   alone                  <= 4 KiB     mapping\n"
                           "zero   engines busy, several  <= 4 KiB     mapping\n"));
    CHECK(policy_of(Direction::write, table) ==
          "write  any                    <= 256 KiB   mapping\n"
          "write  alone                  <= 16 KiB    persistent kernel\n"
          "write  engines busy, several  <= 1 KiB     persistent kernel\n"
          "write  alone                  <= 16 KiB    kernel\n"
          "write  engines busy, several  <= 64 KiB    kernel\n"
          "write  any                    any size     copy engine\n");
}

TEST_CASE("calibrated policy: engine batches are used where they win, and beyond kernels") {
    std::vector table{costs(4 * kib, {}, 6.0, 7.0, 4.0, 20.0, 8.0, 9.0),
                      costs(64 * kib, {}, 8.0, 9.0, 5.0, 42.0, 18.0, 28.0),
                      costs(256 * kib, {}, 11.0, 13.0, 15.0, 74.0, 48.0, 105.0)};
    table[0].batch_crowd = 13.0;
    table[1].batch_crowd = 16.0;  // the kernel is slower, but has precedence
    table[2].batch_crowd = 76.0;
    CHECK(policy_of(Direction::read, table) ==
          "read   alone                  <= 64 KiB    persistent kernel\n"
          "read   engines busy, several  <= 256 KiB   kernel\n"
          "read   several                <= 64 KiB    engine batch\n"
          "read   any                    any size     copy engine\n");
}

TEST_CASE("calibrated policy: under load, the CPU is compared with kernels only") {
    // The engines are fastest, but copies would have to wait for them.
    const std::vector table{costs(1 * kib, 2.0, 1.0, 3.0, 3.0, 9.0, 9.0, 9.0)};
    CHECK(policy_of(Direction::read, table) ==
          "read   engines busy, several  <= 1 KiB     streaming load\n"
          "read   engines busy, several  <= 1 KiB     persistent kernel\n"
          "read   engines busy, several  <= 1 KiB     kernel\n"
          "read   any                    any size     copy engine\n");
}

TEST_CASE("calibrated policy: a path that loses at one size is not used for larger ones") {
    const std::vector table{costs(1 * kib, {}, 9.0, 5.0, 8.0, 9.0, 8.0, 9.0),
                            costs(2 * kib, {}, 5.0, 9.0, 8.0, 9.0, 10.0, 10.0),
                            costs(4 * kib, {}, 9.0, 5.0, 4.0, 9.0, 8.0, 7.0)};
    // Without a mapping there are no rows for it.
    CHECK(policy_of(Direction::read, table) ==
          "read   alone                  <= 1 KiB     kernel\n"
          "read   engines busy, several  <= 1 KiB     kernel\n"
          "read   any                    any size     copy engine\n");
    CHECK(policy_of(Direction::read, {}) ==
          "read   any                    any size     copy engine\n");
}

TEST_CASE("calibrated policy: chooses the shortest chunks that are fast in both directions") {
    const std::tuple<const char*, std::vector<ChunkRates>, std::uint32_t> rows[] = {
        {"the first is fast enough", {{256, 86, 86}, {512, 100, 100}}, 256},
        {"too slow for reads", {{256, 84, 100}, {512, 100, 100}}, 512},
        {"too slow for writes", {{256, 100, 84}, {512, 100, 100}}, 512},
        {"longer ones are slower again", {{256, 10, 10}, {512, 40, 40}, {1024, 30, 30}}, 512},
        {"none is fast both ways", {{256, 100, 10}, {512, 50, 50}, {1024, 10, 100}}, 1024},
        {"there is but one", {{256, 1, 1}}, 256},
    };
    for (const auto& [name, table, bytes] : rows) {
        CAPTURE(name);
        CHECK(choose_chunk_size(table) == bytes);
    }
}

TEST_CASE("calibrated policy: prints the measurements as a table") {
    std::vector table{costs(512, 0.6, 8, 9, 3, 10, 11, 12),
                      costs(4096, {}, 8.25, 9, 3, 10, 11, 12.5)};
    table[1].batch_crowd = 7.5;
    CHECK(to_text("read", table) ==
          "read    bytes  CPU,us  engine  kernel persist engin.x8 batch x8 kernel x8 pers. x8\n"
          "          512     0.6     8.0     9.0     3.0     10.0        -      11.0     12.0\n"
          "         4096       -     8.2     9.0     3.0     10.0      7.5      11.0     12.5\n");
    CHECK(to_text(std::vector<ChunkRates>{{1 << 20, 50.5, 40}}) ==
          "chunks      KiB  read GB/s     write\n"
          "           1024       50.5      40.0\n");
}

}  // namespace
}  // namespace gpunbd::storage::test
