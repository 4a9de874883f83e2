#include "storage/devices/staging_arena.hpp"

#include <bit>
#include <numeric>

#include "tests/storage/random.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::size_t arena_unit = StagingArena::smallest;

struct Piece {
    std::byte* at;
    std::size_t length;
    std::size_t borrower;
};

std::size_t rounded(std::size_t length) { return std::bit_ceil(std::max(length, arena_unit)); }

class Waiter final : public StagingWaiter {
 public:
    std::function<void()> woken;
    void staging_available() override { woken(); }
};

// A simple model: one flag per unit of memory.
class ArenaModel {
 public:
    ArenaModel(std::byte* memory, std::size_t bytes)
        : memory_(memory), lent_(bytes / arena_unit), free_(bytes) {}
    void take(std::byte* at, std::size_t length) { mark(at, length, true); }
    void give_back(std::byte* at, std::size_t length) { mark(at, length, false); }
    std::size_t free_bytes() const { return free_; }
    // Returns true if there is a free piece of that size, aligned to it, as in a buddy allocator.
    bool fits(std::size_t length) const {
        const std::size_t units = rounded(length) / arena_unit;
        for (std::size_t i = 0; i + units <= lent_.size(); i += units) {
            const auto first = lent_.begin() + static_cast<std::ptrdiff_t>(i);
            if (std::find(first, first + static_cast<std::ptrdiff_t>(units), true) ==
                first + static_cast<std::ptrdiff_t>(units)) {
                return true;
            }
        }
        return false;
    }

 private:
    void mark(std::byte* at, std::size_t length, bool lent) {
        const std::size_t size = rounded(length);
        const auto offset = static_cast<std::size_t>(at - memory_);
        REQUIRE(offset % size == 0);
        REQUIRE(offset / arena_unit + size / arena_unit <= lent_.size());
        for (std::size_t i = 0; i != size / arena_unit; ++i) {
            REQUIRE(lent_[offset / arena_unit + i] != lent);
            lent_[offset / arena_unit + i] = lent;
        }
        free_ = lent ? free_ - size : free_ + size;
    }
    std::byte* memory_;
    std::vector<bool> lent_;
    std::size_t free_;
};

TEST_CASE("staging arena: pieces never overlap, coalesce, and obey the held rule") {
    for (const std::size_t bytes :
         {arena_unit, 2 * arena_unit, 16 * arena_unit, 256 * arena_unit}) {
        CAPTURE(bytes);
        std::vector<std::byte> memory(bytes);
        StagingArena arena;
        arena.assign(memory.data(), bytes);
        CHECK(arena.largest() == bytes);
        std::size_t none = 0;
        CHECK(arena.take(bytes + 1, none) == nullptr);
        CHECK(none == 0);
        ArenaModel model(memory.data(), bytes);
        Random random(static_cast<std::uint32_t>(bytes));
        std::vector<std::size_t> held(3);
        std::vector<Piece> pieces;
        for (int step = 0; step != 20000; ++step) {
            if (pieces.empty() || random.one_in(2)) {
                const std::size_t borrower = random.below(3);
                // Half of the requests are small, so that they fragment the arena.
                const auto max = static_cast<std::uint32_t>(random.one_in(2) ? bytes : bytes / 8);
                const std::size_t length = 1 + random.below(std::max<std::uint32_t>(max, 1));
                const std::size_t size = rounded(length);
                const std::size_t before = held[borrower];
                const bool unused = arena.free_bytes() == bytes;
                std::byte* const at = arena.take(length, held[borrower]);
                const bool rule =
                    before == 0 || unused || before + size <= model.free_bytes() - size;
                const bool leaves_reserve =
                    unused || size <= StagingArena::short_piece || size > bytes / 8 ||
                    size + bytes / StagingArena::reserve <= model.free_bytes();
                const bool enough = size <= model.free_bytes() && model.fits(length);
                REQUIRE((at != nullptr) == (rule && leaves_reserve && enough));
                if (at == nullptr) {
                    REQUIRE(held[borrower] == before);
                    continue;
                }
                model.take(at, length);
                REQUIRE(held[borrower] == before + size);
                pieces.push_back({at, length, borrower});
            } else {
                const std::size_t i = random.below(static_cast<std::uint32_t>(pieces.size()));
                const Piece piece = pieces[i];
                pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(i));
                model.give_back(piece.at, piece.length);
                arena.give_back(piece.at, piece.length, held[piece.borrower]);
            }
            REQUIRE(arena.free_bytes() == model.free_bytes());
        }
        for (const Piece& piece : pieces) {
            arena.give_back(piece.at, piece.length, held[piece.borrower]);
        }
        CHECK(arena.free_bytes() == bytes);
        CHECK(held == std::vector<std::size_t>(3));
        // The whole arena is free in one piece again.
        std::byte* const all = arena.take(bytes, held[0]);
        CHECK(all == memory.data());
    }
}

TEST_CASE("staging arena: the first piece is granted whatever its borrower holds elsewhere") {
    std::vector<std::byte> memory(2 * arena_unit);
    StagingArena arena;
    arena.assign(memory.data(), memory.size());
    std::size_t held = 100 * arena_unit;
    std::byte* const first = arena.take(2 * arena_unit, held);
    REQUIRE(first != nullptr);
    CHECK(arena.take(1, held) == nullptr);
    arena.give_back(first, 2 * arena_unit, held);
    CHECK(held == 100 * arena_unit);
}

// Waiters that record the order in which they are woken.
struct Queue {
    std::vector<std::byte> memory = std::vector<std::byte>(4 * arena_unit);
    StagingArena arena;
    std::vector<Waiter> waiters;
    std::vector<int> woken;

    explicit Queue(int count) : waiters(static_cast<std::size_t>(count)) {
        arena.assign(memory.data(), memory.size());
        for (int i = 0; i != count; ++i) {
            waiter(i).woken = [this, i] { woken.push_back(i); };
        }
    }
    Waiter& waiter(int i) { return waiters[static_cast<std::size_t>(i)]; }
    void wait_all() {
        for (Waiter& each : waiters) arena.wait(each);
    }
    // Takes a piece and gives it back.
    void return_memory() {
        std::size_t held = 0;
        arena.give_back(arena.take(1, held), 1, held);
    }
    std::vector<int> wake() {
        woken.clear();
        arena.wake();
        return woken;
    }
};

TEST_CASE("staging arena: long pieces leave a part of the memory to short ones") {
    constexpr std::size_t length = 2 * StagingArena::short_piece;
    std::vector<std::byte> memory(16 * length);
    StagingArena arena;
    arena.assign(memory.data(), memory.size());
    std::vector<std::size_t> held(16);
    std::vector<std::byte*> pieces;
    for (std::size_t& each : held) pieces.push_back(arena.take(length, each));
    CHECK(std::ranges::count(pieces, nullptr) == 1);
    CHECK(pieces.back() == nullptr);
    std::size_t other = 0;
    CHECK(arena.take(StagingArena::short_piece, other) != nullptr);
    CHECK(arena.take(length, held[15]) == nullptr);
    // A piece that was just returned can be taken again, since others may wait for its borrower.
    arena.give_back(pieces[0], length, held[0]);
    CHECK(arena.take(length, held[0]) == nullptr);
    CHECK(arena.take_again(length, held[0]) != nullptr);
}

TEST_CASE("staging arena: waiters are woken in order, once, after memory is returned") {
    Queue queue(3);
    queue.wait_all();
    queue.wait_all();  // waiting twice has no effect
    CHECK_FALSE(queue.arena.can_wake());
    CHECK(queue.wake().empty());
    queue.return_memory();
    CHECK(queue.arena.can_wake());
    CHECK(queue.wake() == std::vector{0, 1, 2});
    CHECK_FALSE(queue.arena.can_wake());
    queue.return_memory();
    CHECK(queue.wake().empty());
}

TEST_CASE("staging arena: a waiter can leave from any place in the queue") {
    for (int leaves = 0; leaves != 8; ++leaves) {  // one bit for each waiter that leaves
        CAPTURE(leaves);
        Queue queue(3);
        queue.wait_all();
        std::vector<int> expected;
        for (int i = 0; i != 3; ++i) {
            if ((leaves >> i & 1) == 0) expected.push_back(i);
        }
        for (int i = 0; i != 3; ++i) {
            if ((leaves >> i & 1) != 0) queue.arena.stop_waiting(queue.waiter(i));
        }
        queue.arena.stop_waiting(queue.waiter(leaves % 3));
        if ((leaves >> (leaves % 3) & 1) == 0) std::erase(expected, leaves % 3);
        // Waiters that have left can wait again, at the end of the queue.
        queue.arena.wait(queue.waiter(leaves % 3));
        expected.push_back(leaves % 3);
        queue.return_memory();
        CHECK(queue.wake() == expected);
    }
}

// A client with many requests disconnects. Each leaves in constant time; with linear time this test
// would take minutes.
TEST_CASE("staging arena: leaving the queue takes constant time") {
    constexpr int count = 200'000;
    Queue queue(count);
    queue.wait_all();
    for (int i = count; i != 2; --i) queue.arena.stop_waiting(queue.waiter(i - 1));
    queue.return_memory();
    CHECK(queue.wake() == std::vector{0, 1});
    queue.wait_all();
    Random random(1);
    std::vector<int> order(count);
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size() - 1; i != 0; --i) {
        std::swap(order[i], order[random.below(static_cast<std::uint32_t>(i + 1))]);
    }
    for (const int i : order) queue.arena.stop_waiting(queue.waiter(i));
    CHECK_FALSE(queue.arena.waited_for());
}

TEST_CASE("staging arena: a destroyed waiter is not woken") {
    Queue queue(2);
    {
        Waiter gone;
        gone.woken = [] { FAIL("it is gone"); };
        queue.arena.wait(queue.waiter(0));
        queue.arena.wait(gone);
        queue.arena.wait(queue.waiter(1));
    }
    queue.return_memory();
    CHECK(queue.wake() == std::vector{0, 1});
}

TEST_CASE("staging arena: a waiter that waits again goes to the end and is not woken twice") {
    Queue queue(3);
    queue.waiter(0).woken = [&] {
        queue.woken.push_back(0);
        queue.arena.wait(queue.waiter(0));
    };
    queue.wait_all();
    queue.return_memory();
    CHECK(queue.wake() == std::vector{0, 1, 2});
    queue.arena.wait(queue.waiter(1));
    queue.return_memory();
    CHECK(queue.wake() == std::vector{0, 1});
}

// A client disconnects with all its requests while another client is served.
TEST_CASE("staging arena: waking ends even if waiters leave meanwhile") {
    for (int leaver = 0; leaver != 4; ++leaver) {
        for (int at = 0; at != 4; ++at) {
            CAPTURE(leaver);
            CAPTURE(at);
            Queue queue(4);
            int calls = 0;
            for (int i = 0; i != 4; ++i) {
                queue.waiter(i).woken = [&, i] {
                    queue.woken.push_back(i);
                    REQUIRE(++calls < 100);
                    if (i == at) {
                        queue.arena.stop_waiting(queue.waiter(leaver));
                    } else {
                        queue.arena.wait(queue.waiter(i));  // there is no memory for it yet
                    }
                };
            }
            queue.wait_all();
            queue.return_memory();
            std::vector<int> expected;
            for (int i = 0; i != 4; ++i) {
                if (i <= at || i != leaver) expected.push_back(i);
            }
            CHECK(queue.wake() == expected);
        }
    }
}

TEST_CASE("staging arena: memory returned during waking wakes waiters the next time") {
    Queue queue(2);
    queue.waiter(0).woken = [&] {
        queue.woken.push_back(0);
        queue.return_memory();
        queue.arena.wait(queue.waiter(0));
    };
    queue.wait_all();
    queue.return_memory();
    CHECK(queue.wake() == std::vector{0, 1});
    CHECK(queue.arena.can_wake());
    CHECK(queue.wake() == std::vector{0});
}

}  // namespace
}  // namespace gpunbd::storage::test
