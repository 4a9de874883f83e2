// READs that are answered in one piece: one header and then all data, while other replies wait.
// These are simple replies and structured replies with DF.
#include "tests/server/happy_script.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

// Pages 0, 4 and 8 are holes and the others are mapped. A READ that starts with a hole sends its
// header before it copies anything.
class OnePiece {
 public:
    explicit OnePiece(bool is_structured, std::string_view devices = "s")
        : structured(is_structured),
          rig({.devices = devices,
               .channels = {.chunk_size = 8 * kib, .slots = 2, .pinned = 256 * kib}}),
          client(rig.enter({.structured = is_structured})) {
        change({CommandType::write, page, 3 * page, 0, 5});
        change({CommandType::write, 5 * page, 3 * page, 0, 6});
    }
    Ask read(std::uint64_t offset, std::uint32_t length) const {
        return {CommandType::read, offset, length,
                structured ? protocol::command_flag::df : std::uint16_t{0}};
    }
    void change(const Ask& ask) { model.ask(client, ask); }
    // Checks that the next reply is this one.
    void expect_next(std::uint64_t cookie, const Ask& ask, Error error = Error::none) {
        const auto answer = client.next();
        REQUIRE(answer.has_value());
        CHECK(answer->cookie == cookie);
        CHECK(answer->error == error);
        if (ask.type != CommandType::read || error != Error::none) return;
        model.check(ask, *answer);
        if (structured && ask.length != 0) {
            CHECK(answer->chunks == std::vector{protocol::ChunkType::offset_data});
        }
    }
    void check_end_of_test() {
        const Ask whole = read(0, 8 * page + 5000);
        expect_next(client.send(whole), whole);
        client.disconnect();
        rig.check_clean();
    }

    const bool structured;
    Rig rig;
    Client client;
    Model model{rig.options.size};
};

constexpr Ask flush{CommandType::flush, 0, 0};

TEST_CASE("one piece: other replies wait and follow it in order") {
    for (const bool structured : {false, true}) {
        OnePiece test(structured);
        test.rig.script.hold = true;
        const Ask large = test.read(0, 4 * page);
        const Ask hole = test.read(4 * page, page);
        const std::uint64_t first = test.client.send(large);
        std::uint64_t others[5];
        for (int i = 0; i != 5; ++i) others[i] = test.client.send(i % 2 == 0 ? flush : hole);
        test.rig.let_run();
        CHECK(test.client.readable());
        test.rig.script.hold = false;
        test.expect_next(first, large);
        for (int i = 0; i != 5; ++i) test.expect_next(others[i], i % 2 == 0 ? flush : hole);
        test.check_end_of_test();
    }
}

TEST_CASE("one piece: a reply that has not begun delays no others") {
    for (const bool structured : {false, true}) {
        OnePiece test(structured);
        test.rig.script.hold = true;
        // Both copies are in progress, so the READ needs no more memory.
        const Ask two = test.read(page, 16 * kib);
        const std::uint64_t first = test.client.send(two);
        test.expect_next(test.client.send(flush), flush);
        test.rig.script.hold = false;
        test.expect_next(first, two);
        test.check_end_of_test();
    }
}

TEST_CASE("one piece: if the first copy fails, the reply is an error and other replies are sent") {
    for (const bool structured : {false, true}) {
        OnePiece test(structured);
        test.rig.script.hold = true;
        const Ask large = test.read(page, 3 * page);
        const Ask small = test.read(5 * page, 100);
        const std::uint64_t first = test.client.send(large);
        const std::uint64_t second = test.client.send(small);
        const std::uint64_t third = test.client.send(large);
        test.rig.let_run();
        test.rig.script.copies_until_failure = 0;
        test.rig.script.hold = false;
        CHECK(test.client.answer(first).error == Error::eio);
        test.model.check(small, test.client.answer(second));
        test.model.check(large, test.client.answer(third));
        test.check_end_of_test();
    }
}

// The second READ waits for the stream. All its copies have ended, one with an error, before those
// of the first READ, because the channel of the even pages is polled first.
TEST_CASE("one piece: a READ that waits for the stream can fail") {
    for (const bool structured : {false, true}) {
        for (const std::uint32_t length : {100U, 10 * kib, 16 * kib}) {
            for (const std::int64_t k : {0, 1}) {
                CAPTURE(length);
                CAPTURE(k);
                if (k == 1 && length < 8 * kib) continue;
                OnePiece test(structured, "ss");
                test.change({CommandType::trim, 5 * page, page});
                test.rig.script.hold = true;
                const Ask holds = test.read(0, page + 16 * kib);
                const Ask waits = test.read(5 * page, page + length);
                const std::uint64_t first = test.client.send(holds);
                const std::uint64_t second = test.client.send(waits);
                const std::uint64_t third = test.client.send(flush);
                test.rig.let_run();
                test.rig.on_worker([&] {  // between two polls of the channels
                    test.rig.script.copies_until_failure = k;
                    test.rig.script.hold = false;
                });
                test.expect_next(first, holds);
                // The third reply is sent before or after the second READ gets the stream.
                CHECK(test.client.answer(second).error == Error::eio);
                CHECK(test.client.answer(third).error == Error::none);
                // Later requests reuse the same objects.
                const Ask large = test.read(0, 4 * page);
                for (int i = 0; i != 3; ++i) {
                    const std::uint64_t again = test.client.send(large);
                    const std::uint64_t other = test.client.send(waits);
                    test.model.check(large, test.client.answer(again));
                    test.model.check(waits, test.client.answer(other));
                }
                test.check_end_of_test();
            }
        }
    }
}

TEST_CASE("one piece: a failure after the header disconnects the client") {
    for (const bool structured : {false, true}) {
        OnePiece test(structured);
        test.rig.script.copies_until_failure = 0;
        test.client.send(test.read(0, 2 * page));
        CHECK_FALSE(test.client.next().has_value());
        CHECK(test.client.ended_within_an_answer());
        CHECK(test.client.unanswered() == 1);
        test.rig.check_clean();
    }
}

}  // namespace
}  // namespace gpunbd::server::test
