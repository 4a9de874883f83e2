// gpunbd:device, alone and together with base:allocation, with structured replies and with extended
// headers.
#include "tests/server/rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

namespace flag = protocol::command_flag;
using AllExtents = std::vector<protocol::Extent>;

constexpr std::uint64_t page_bytes = 32 * kib;
constexpr std::uint32_t empty = protocol::state_hole | protocol::state_zero;

Handshake with_device(bool extended) { return {.extended = extended, .device = true}; }

TEST_CASE("gpunbd:device: reports the device of each extent, together with base:allocation") {
    for (const bool extended : {false, true}) {
        CAPTURE(extended);
        Rig rig({.devices = "sh", .size = 6 * page_bytes});  // pages alternate: 1, 2, 1, 2 ...
        Client client = rig.enter(with_device(extended));
        const auto status = [&](std::uint64_t offset, std::uint64_t length,
                                std::uint16_t flags = 0) {
            return client.ask({CommandType::block_status, offset, length, flags});
        };
        const Answer nothing = status(0, 6 * page_bytes);
        CHECK(nothing.extents == AllExtents{{6 * page_bytes, empty}});
        CHECK(nothing.devices == AllExtents{{6 * page_bytes, 0}});
        CHECK(nothing.chunks.size() == 2);

        CHECK(client.ask({CommandType::write, page_bytes, 2 * page_bytes}).error == Error::none);
        CHECK(client.ask({CommandType::write, 5 * page_bytes, 10}).error == Error::none);
        const Answer some = status(0, 6 * page_bytes);
        CHECK(some.extents == AllExtents{{page_bytes, empty},
                                         {2 * page_bytes, 0},
                                         {2 * page_bytes, empty},
                                         {page_bytes, 0}});
        CHECK(some.devices == AllExtents{{page_bytes, 0},
                                         {page_bytes, 2},
                                         {page_bytes, 1},
                                         {2 * page_bytes, 0},
                                         {page_bytes, 2}});

        // One extent per context, each as long as its context allows.
        const Answer one = status(page_bytes + 7, 5 * page_bytes - 7, flag::req_one);
        CHECK(one.extents == AllExtents{{2 * page_bytes - 7, 0}});
        CHECK(one.devices == AllExtents{{page_bytes - 7, 2}});
        const Answer within = status(page_bytes + 7, 100, flag::req_one);
        CHECK(within.extents == AllExtents{{100, 0}});
        CHECK(within.devices == AllExtents{{100, 2}});

        CHECK(client.ask({CommandType::trim, page_bytes, page_bytes}).error == Error::none);
        CHECK(status(page_bytes, 2 * page_bytes).devices ==
              AllExtents{{page_bytes, 0}, {page_bytes, 1}});
        rig.check_clean(client);
    }
}

TEST_CASE("gpunbd:device: a status payload selects contexts") {
    Rig rig({.devices = "hs", .size = 6 * page_bytes});
    {
        Client client = rig.enter(with_device(true));
        CHECK(client.ask({CommandType::write, 0, 2 * page_bytes}).error == Error::none);
        const AllExtents allocation{{2 * page_bytes, 0}, {4 * page_bytes, empty}};
        const AllExtents devices{{page_bytes, 1}, {page_bytes, 2}, {4 * page_bytes, 0}};
        for (const std::uint32_t contexts : {1, 2, 3}) {
            CAPTURE(contexts);
            const Answer answer = client.ask({.type = CommandType::block_status,
                                              .length = 6 * page_bytes,
                                              .flags = flag::payload_len,
                                              .contexts = contexts});
            CHECK(answer.error == Error::none);
            CHECK(answer.extents == ((contexts & 1) != 0 ? allocation : AllExtents()));
            CHECK(answer.devices == ((contexts & 2) != 0 ? devices : AllExtents()));
        }
    }
    Client client = rig.enter({.extended = true});  // has not negotiated gpunbd:device
    const Answer answer = client.ask({.type = CommandType::block_status,
                                      .length = 6 * page_bytes,
                                      .flags = flag::payload_len,
                                      .contexts = 2});
    CHECK(answer.error == Error::einval);
    CHECK(answer.text == "a metadata context is unknown or named twice");
    rig.check_clean(client);
    CHECK(rig.budget_used() == 0);
}

TEST_CASE("gpunbd:device: a reply with alternating pages is no longer than its charge") {
    const std::uint64_t pages = 500;
    Rig rig({.devices = "hhh", .size = pages * page_bytes});
    Client client = rig.enter(with_device(true));
    for (std::uint64_t at = 0; at != pages; at += 2) {
        client.ask({CommandType::write, at * page_bytes, 1});
    }
    const Answer answer = client.ask({CommandType::block_status, 0, pages * page_bytes});
    CHECK(answer.extents.size() == pages);
    CHECK(answer.devices.size() == pages);
    const protocol::Command command{.type = CommandType::block_status,
                                    .length = pages * page_bytes,
                                    .contexts = protocol::MetaContexts::all()};
    const std::size_t wire = 2 * (32 + 8 + pages * 16);
    CHECK(StatusOperation::max_memory(command, page_bytes) >=
          wire + pages * sizeof(protocol::Extent));
    rig.check_over(client);
}

}  // namespace
}  // namespace gpunbd::server::test
