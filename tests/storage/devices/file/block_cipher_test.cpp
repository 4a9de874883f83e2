#include "storage/devices/file/block_cipher.hpp"

#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

TEST_CASE("block cipher: a block decrypts only with its number and its key") {
    const BlockKey key;
    const BlockKey other;
    CHECK(std::memcmp(key.data(), other.data(), 64) != 0);
    CHECK(std::memcmp(key.data(), key.data() + 32, 32) != 0);
    const std::vector<std::byte> plain(3 * block_bytes, std::byte{7});
    std::vector<std::byte> memory = plain;
    BlockCipher cipher(key);
    // Beyond 32 bits.
    const BlockRange range{(std::uint64_t{1} << 40) - 1, (std::uint64_t{1} << 40) + 2};
    REQUIRE(cipher.encrypt(memory.data(), range));
    const std::vector<std::byte> encrypted = memory;
    const auto block = [&](std::uint64_t i) { return encrypted.data() + i * block_bytes; };
    CHECK(std::memcmp(block(0), block(1), block_bytes) != 0);
    CHECK(std::memcmp(block(1), block(2), block_bytes) != 0);
    // Each block on its own, in a thread's own context.
    BlockCipher second(key);
    for (const std::uint64_t i : {2U, 0U, 1U}) {
        const std::uint64_t number = range.first + i;
        REQUIRE(second.decrypt(memory.data() + i * block_bytes, {number, number + 1}));
    }
    CHECK(memory == plain);
    memory = encrypted;
    REQUIRE(second.decrypt(memory.data(), {range.first + 1, range.end + 1}));
    CHECK(memory != plain);
    memory = encrypted;
    REQUIRE(BlockCipher(other).decrypt(memory.data(), range));
    CHECK(memory != plain);
}

}  // namespace
}  // namespace gpunbd::storage::test
