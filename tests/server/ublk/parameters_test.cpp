#include "server/ublk/parameters.hpp"

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

Export exported(std::string name, std::string instance) {
    Export out;
    out.info = {.name = std::move(name), .instance = std::move(instance), .size = 1 << 20};
    out.info.minimum_block = 1;
    out.info.preferred_block = 4096;
    return out;
}

TEST_CASE("ublk parameters: blocks, size and discard follow the export") {
    Export its = exported("a", "1");
    ublk::Parameters made = ublk::parameters_of(its);
    CHECK(made.logical_block_shift == 9);
    CHECK(made.physical_block_shift == 12);
    CHECK(made.best_shift == 12);
    CHECK(made.sectors == 2048);
    CHECK(made.attributes == 0);
    CHECK((made.types & ublk::Parameters::discard) != 0);
    CHECK(made.discard_granularity == 4096);

    its.info.minimum_block = 65536;  // more than a page of the kernel, its maximum
    its.info.preferred_block = 1 << 20;
    its.info.read_only = true;
    made = ublk::parameters_of(its);
    CHECK(made.logical_block_shift == 12);
    CHECK(made.best_shift == 20);
    CHECK(made.attributes == ublk::Parameters::read_only);
    CHECK((made.types & ublk::Parameters::discard) == 0);
}

TEST_CASE("ublk mark: a device belongs to a name and to contents") {
    const ublk::Mark mark(exported("a", "1"));
    CHECK(mark.is_gpunbd());
    CHECK(mark == ublk::Mark(exported("a", "1")));
    CHECK(mark == ublk::Mark(mark.value));
    CHECK(mark != ublk::Mark(exported("a", "2")));
    CHECK(mark.same_name(ublk::Mark(exported("a", "2"))));
    CHECK(!mark.same_contents(ublk::Mark(exported("a", "2"))));
    Export changed = exported("a", "1");
    changed.info.read_only = true;
    CHECK(mark != ublk::Mark(changed));
    CHECK(mark.same_contents(ublk::Mark(changed)));
    CHECK(!mark.same_name(ublk::Mark(exported("b", "1"))));
    CHECK(!ublk::Mark(0).is_gpunbd());
    CHECK(!ublk::Mark(~std::uint64_t{0}).is_gpunbd());
    // Devices of earlier versions keep their marks.
    CHECK(mark.value == 7452939702512327698U);
}

}  // namespace
}  // namespace gpunbd::server::test
