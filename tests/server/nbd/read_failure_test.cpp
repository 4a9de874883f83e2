// The error reply to a failed READ contains the offset, if replies are chunks, and the reason.
#include "tests/server/rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using protocol::ChunkType;

constexpr std::uint64_t one_page = 32 * kib;
constexpr std::uint64_t one_copy = 8 * kib;  // for the channels of the rig

TEST_CASE("a READ fails: its offset is that of the copy that failed") {
    for (const bool extended : {false, true}) {
        for (std::int64_t k = 0; k != 12; ++k) {
            CAPTURE(extended);
            CAPTURE(k);
            Rig rig;
            Client client = rig.enter({.extended = extended});
            client.ask({CommandType::write, 0, 3 * one_page});
            rig.settle();
            rig.script.copies_until_failure = k;
            const Answer answer = client.ask({CommandType::read, 100, 3 * one_page - 100});
            CHECK(answer.error == Error::eio);
            CHECK(answer.text == "the device failed");
            CHECK(answer.chunks.back() == ChunkType::error_offset);
            // Copies have the maximum length but do not cross pages.
            const std::uint64_t at = k == 0 ? 100 : 100 + static_cast<std::uint64_t>(k) * one_copy;
            const std::uint64_t first_page_copies = 4;
            const std::uint64_t expected = static_cast<std::uint64_t>(k) < first_page_copies
                                               ? at
                                               : static_cast<std::uint64_t>(k) * one_copy;
            REQUIRE(answer.failed_at.has_value());
            CHECK(*answer.failed_at == expected);
            CHECK(client.ask({CommandType::read, 0, 3 * one_page}).error == Error::none);
            rig.check_clean(client);
        }
    }
}

TEST_CASE("a READ of a dead device fails at the offset of its first page there") {
    Rig rig;
    Client client = rig.enter({});
    client.ask({CommandType::write, 2 * one_page, one_page});
    rig.settle();
    rig.script.copies_until_dead = 0;
    CHECK(client.ask({CommandType::read, 2 * one_page, 10}).error == Error::eio);
    const Answer answer = client.ask({CommandType::read, one_page, 2 * one_page});
    CHECK(answer.error == Error::eio);
    CHECK(answer.chunks == std::vector{ChunkType::error_offset});
    CHECK(answer.failed_at == 2 * one_page);
    // The request fits into one chunk. Simple replies cannot contain the offset.
    const Answer whole =
        client.ask({CommandType::read, one_page, 2 * one_page, protocol::command_flag::df});
    CHECK(whole.chunks == std::vector{ChunkType::error_offset});
    CHECK(whole.failed_at == 2 * one_page);
    Client simple = rig.enter({.structured = false});
    CHECK(simple.ask({CommandType::read, one_page, 2 * one_page}).error == Error::eio);
}

TEST_CASE("only the error of a READ contains an offset") {
    for (const bool extended : {false, true}) {
        Rig rig;
        Client client = rig.enter({.extended = extended});
        rig.script.allocations_until_failure = 0;
        const Answer written = client.ask({CommandType::write, 0, 10});
        CHECK(written.error == Error::enospc);
        CHECK(written.chunks == std::vector{ChunkType::error});
        CHECK(written.text == "no memory left on the device");
        CHECK(client.ask({CommandType::read, rig.options.size, 1}).chunks ==
              std::vector{ChunkType::error});
        rig.check_clean(client);
    }
}

}  // namespace
}  // namespace gpunbd::server::test
