// Detects swap on an export by size and instance.
#include "server/daemon/swap_protection.hpp"

#include "tests/server/protection/fake_swaps.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

constexpr std::uint64_t sectors = 2048;

struct Served {
    explicit Served(bool swap) {
        auto made = std::make_shared<Export>();
        made->options.swap = swap;
        made->info.size = sectors * 512;
        made->info.instance = "ours";
        use = made->use;
        exports.push_back(std::move(made));
        system.swaps_to("/dev/nbd0");
        system.has("nbd0", sectors);
    }
    std::size_t found() const { return swapped_to(exports, system.path()).size(); }

    FakeSwaps system;
    std::shared_ptr<ExportUse> use;
    ExportRegistry::Exports exports;
};

TEST_CASE("swap use: a device of the export's size matches if the export has a client") {
    Served served(true);
    CHECK(served.found() == 0);
    auto client = served.use->enter("uid 0");
    CHECK(swapped_to(served.exports, served.system.path()) ==
          std::vector<std::string>{"/dev/nbd0"});
    served.system.has("nbd0", sectors + 8);
    CHECK(served.found() == 0);
    served.system.has("nbd0", sectors);
    CHECK(served.found() == 1);
    client.lease.reset();
    CHECK(served.found() == 0);
}

TEST_CASE("swap use: the instance takes precedence over the size") {
    Served served(true);
    const auto client = served.use->enter("uid 0");
    served.system.has("nbd0", sectors, "others");
    CHECK(served.found() == 0);
    served.system.has("nbd0", sectors, "ours");
    CHECK(served.found() == 1);
}

TEST_CASE("swap use: exports without swap are ignored") {
    const Served served(false);
    const auto client = served.use->enter("uid 0");
    CHECK(served.found() == 0);
}

}  // namespace
}  // namespace gpunbd::server::test
