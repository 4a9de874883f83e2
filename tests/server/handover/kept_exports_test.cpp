// The options of exports that were created at run time, with the supervisor and for a successor.
#include "server/handover/kept_exports.hpp"

#include <doctest/doctest.h>

#include <string>

#include "tests/server/supervisor/living_supervisor.hpp"

namespace gpunbd::server::test {
namespace {

config::ExportOptions stored_export(const std::string& name) {
    config::ExportOptions options;
    options.name = name;
    options.size = config::Size{.bytes = 1 << 20};
    return options;
}

TEST_CASE("kept options: changed ones are stored before the earlier ones are removed") {
    const PlayedSupervisor supervisor;
    PassedDescriptors none;
    DescriptorStore store(supervisor.way, std::nullopt, {});
    KeptExports exports(store, none);
    config::ExportOptions one = stored_export("one");
    for (const char* const name : {"one", "one", "two"}) {
        CAPTURE(name);
        const bool is_first = exports.copies().empty();
        const std::string earlier = is_first ? "" : exports.copies().at(0).name;
        one.name = name;
        REQUIRE(exports.rename("one", one).has_value());
        const auto stored = supervisor.next();
        REQUIRE(stored);
        CHECK(stored->text.starts_with("FDSTORE=1\n"));
        const auto removed = supervisor.next();
        CHECK(removed.has_value() != is_first);
        if (removed) CHECK(removed->text == "FDSTOREREMOVE=1\nFDNAME=" + earlier);
        CHECK_FALSE(supervisor.next());
    }
}

TEST_CASE("kept options: a successor gets those of the exports that there are") {
    LivingSupervisor supervisor;
    PassedDescriptors none;
    DescriptorStore store(supervisor.way, std::nullopt, {});
    KeptExports exports(store, none);
    REQUIRE(exports.keep(stored_export("one")).has_value());
    REQUIRE(exports.keep(stored_export("two")).has_value());
    exports.drop("one");
    exports.drop("one");
    REQUIRE(exports.copies().size() == 1);
    CHECK(supervisor.names() == std::vector{exports.copies()[0].name});
    exports.drop("two");
    CHECK(exports.copies().empty());
}

}  // namespace
}  // namespace gpunbd::server::test
