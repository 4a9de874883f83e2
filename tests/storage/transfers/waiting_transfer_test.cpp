// Transfers whose page is being allocated: they continue when it is ready, fail if it cannot be
// allocated, and do not end before the request completes.
#include "storage/transfers/read_transfer.hpp"
#include "storage/transfers/write_transfer.hpp"
#include "tests/storage/pages/latch_device.hpp"
#include "tests/storage/pages/words.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::uint64_t waiting_page_size = 64 * mib;  // one page per slab
constexpr std::uint32_t part = 100;                    // bytes at the end of page 0, and in page 1
constexpr Range across_pages{.offset = waiting_page_size - part, .length = 2 * part};

// Page 0 is full of ones, and page 1 is a hole that has to be allocated.
struct WaitingClient final : TransferOwner {
    LatchDevice device{0, {}};
    std::unique_ptr<Volume> volume;
    Channels channels{{.chunk_size = 64 * kib, .slots = 2, .pinned = 256 * kib}};
    ClientAccount account;
    int wake_ups = 0;

    WaitingClient() {
        volume = checked(Volume::create(
            {.size = 3 * waiting_page_size, .page_size = waiting_page_size}, {&device}));
        channels.open(device);
        PageRef first = map_page(*volume, 0);
        std::memset(first.cpu() + waiting_page_size - part, 1, part);
        device.allocating.close();
    }
    void transfer_moved(Transfer&) override { ++wake_ups; }
    TransferContext context() { return {*volume, channels, account}; }
    void wait_for_answer() {
        device.allocating.open();
        while (channels.page_completions().in_progress() != 0) channels.poll();
    }
    // Returns true if the whole part in page 0 or 1 has this value.
    bool is(std::uint64_t page, std::byte value) const {
        const PageRef ref = volume->find(page);
        if (ref.hole()) return value == std::byte{0};
        const std::byte* const at = ref.cpu() + (page == 0 ? waiting_page_size - part : 0);
        for (std::uint32_t i = 0; i != part; ++i) {
            if (at[i] != value) return false;
        }
        return true;
    }
    // The page that it requested is not leaked.
    void check_free() {
        for (const std::uint64_t page : {0, 1, 2}) volume->unmap(page);
        CHECK(volume->mapped_bytes() == 0);
        CHECK(volume->retired_bytes() == 0);
    }
};

const std::vector<std::byte> twos(2 * part, std::byte{2});

TEST_CASE("waiting transfer: a write continues when its page is allocated") {
    WaitingClient client;
    WriteTransfer write;
    write.begin(client.context(), client, across_pages);
    client.device.allocating.wait_for_one();
    CHECK(write.fill(twos) == part);
    CHECK_FALSE(write.all_filled());
    CHECK_FALSE(write.done());
    iovec none{};
    CHECK(write.lend({&none, 1}) == 0);
    CHECK(client.wake_ups == 0);
    client.wait_for_answer();
    CHECK(client.wake_ups == 1);
    CHECK(write.fill(std::span(twos).subspan(part)) == part);
    CHECK(write.done());
    CHECK(write.status() == Status::ok);
    CHECK(client.is(0, std::byte{2}));
    CHECK(client.is(1, std::byte{2}));
    client.check_free();
}

TEST_CASE("waiting transfer: an abandoned write ends after the allocation with a zero page") {
    WaitingClient client;
    WriteTransfer write;
    write.begin(client.context(), client, across_pages);
    client.device.allocating.wait_for_one();
    CHECK(write.fill(twos) == part);
    write.abandon();
    for (int polls = 0; polls != 10; ++polls) {
        client.channels.poll();
        CHECK_FALSE(write.done());
    }
    client.wait_for_answer();
    CHECK(write.done());
    CHECK(client.wake_ups == 1);
    CHECK(write.status() == Status::io_error);
    CHECK(client.is(0, std::byte{2}));
    CHECK(client.is(1, std::byte{0}));
    client.check_free();
}

TEST_CASE("waiting transfer: zeroing that keeps pages ends after the allocation") {
    for (const bool is_abandoned : {false, true}) {
        CAPTURE(is_abandoned);
        WaitingClient client;
        ZeroTransfer zero;
        zero.begin(client.context(), client, across_pages, {.keep_pages = true});
        client.device.allocating.wait_for_one();
        if (is_abandoned) zero.abandon();
        for (int polls = 0; polls != 10; ++polls) {
            client.channels.poll();
            CHECK_FALSE(zero.done());
        }
        CHECK(client.is(0, std::byte{0}));
        client.wait_for_answer();
        while (client.channels.busy()) client.channels.poll();
        CHECK(zero.done());
        CHECK(zero.status() == Status::ok);
        CHECK(client.wake_ups != 0);
        CHECK((is_abandoned || client.volume->mapped(1)));
        CHECK(client.is(1, std::byte{0}));
        client.check_free();
    }
}

TEST_CASE("waiting transfer: a failed allocation fails it, but not the next one") {
    enum class Failure { no_memory, not_cleared };
    for (const Failure failure : {Failure::no_memory, Failure::not_cleared}) {
        const bool is_full = failure == Failure::no_memory;
        CAPTURE(is_full);
        const Status expected = is_full ? Status::no_space : Status::io_error;
        WaitingClient client;
        PageRef held;
        if (!is_full) {
            // The former page of number 1 is still pinned and has to be cleared.
            client.device.allocating.open();
            REQUIRE(client.volume->map(1, held) == Status::ok);
            client.volume->unmap(1);
        }
        client.device.memory.set_capacity(waiting_page_size);
        client.device.memory.clears_fail = true;
        WriteTransfer write;
        write.begin(client.context(), client, across_pages);
        CHECK(write.fill(twos) == part);
        client.wait_for_answer();
        CHECK(client.wake_ups == 1);
        CHECK(write.status() == expected);
        CHECK(write.fill(std::span(twos).subspan(part)) == 0);
        write.abandon();
        CHECK(write.done());
        CHECK(write.status() == expected);
        CHECK_FALSE(client.volume->mapped(1));
        CHECK(client.is(0, std::byte{2}));

        ZeroTransfer zero;
        zero.begin(client.context(), client, across_pages, {.keep_pages = true});
        client.wait_for_answer();
        while (client.channels.busy()) client.channels.poll();
        CHECK(zero.done());
        CHECK(zero.status() == expected);
        CHECK_FALSE(client.volume->mapped(1));

        client.device.memory.set_capacity(3 * waiting_page_size);
        client.device.memory.clears_fail = false;
        write.begin(client.context(), client, across_pages);
        CHECK(write.fill(twos) == part);
        client.wait_for_answer();
        CHECK(write.fill(std::span(twos).subspan(part)) == part);
        CHECK(write.done());
        CHECK(write.status() == Status::ok);
        CHECK(client.is(1, std::byte{2}));
        held.reset();
        client.check_free();
    }
}

TEST_CASE("waiting transfer: other requests of the worker are served meanwhile") {
    WaitingClient client;
    WriteTransfer write;
    write.begin(client.context(), client, {.offset = waiting_page_size, .length = part});
    client.device.allocating.wait_for_one();
    ReadTransfer read;
    read.begin(client.context(), client, across_pages);
    ReadTransfer::Piece piece;
    REQUIRE(read.next(piece));
    CHECK(piece.data != nullptr);
    read.give_back();
    REQUIRE(read.next(piece));
    CHECK(piece.data == nullptr);
    read.give_back();
    CHECK(read.all_taken());
    WriteTransfer other;
    other.begin(client.context(), client, {.offset = 0, .length = part});
    CHECK(other.fill(std::span(twos).first(part)) == part);
    CHECK(other.done());
    ZeroTransfer trim;
    trim.begin(client.context(), client, {.offset = 0, .length = waiting_page_size},
               {.keep_pages = false});
    CHECK(trim.done());
    CHECK_FALSE(client.volume->mapped(0));
    CHECK_FALSE(write.done());
    client.wait_for_answer();
    CHECK(write.fill(std::span(twos).first(part)) == part);
    CHECK(write.done());
    CHECK(client.is(1, std::byte{2}));
    client.check_free();
}

}  // namespace
}  // namespace gpunbd::storage::test
