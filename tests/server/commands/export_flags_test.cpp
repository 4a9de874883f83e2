// The flags of `gpunbd export create` and the keys of the configuration.
#include "config/schema.hpp"
#include "config/yaml_file.hpp"
#include "server/tools/export/export_command.hpp"
#include "server/tools/export/key_flags.hpp"
#include "tests/test.hpp"

namespace gpunbd::tools {
namespace {

TEST_CASE("export create: each key of an export has a flag") {
    KeyValues given;
    std::set<std::string> flags{"exports[].name", "exports[].access"};
    for (const config::Flag& flag : export_key_flags(given)) flags.insert(flag.key);
    flags.erase("");
    for (const config::KeyText& key : config::all_keys()) {
        const bool is_mapping = key.fallback.empty();
        if (!key.path.starts_with("exports[].") || key.path.starts_with("exports[].access[]")) {
            continue;
        }
        CAPTURE(key.path);
        CHECK(flags.contains(key.path) == !is_mapping);
    }
}

TEST_CASE("export create: every flag's example is valid, and the configuration reads the result") {
    KeyValues given;
    for (const config::Flag& flag : export_key_flags(given)) {
        CAPTURE(flag.name);
        CHECK_FALSE(flag.store(flag.example).has_value());
    }
    for (const char* key : {"layout", "clone_of", "stripe_size"}) {
        std::erase_if(given, [&](const auto& each) { return each.first == key; });
    }
    std::erase_if(given, [](const auto& each) {
        return each.first.starts_with("clone_per_client") || each.first.starts_with("origin.");
    });
    const config::LoadedExport loaded =
        config::load_export_text(export_json("1234", given), "flags");
    for (const config::Problem& each : loaded.problems) CHECK(each.text() == "");
    CHECK(loaded.options.name == "1234");
    CHECK(loaded.options.size == config::Size{.bytes = std::uint64_t{8} << 30});
    CHECK(loaded.options.read_only);
    CHECK(loaded.options.access.size() == 1);
    CHECK(loaded.options.access[0].mode == config::AccessMode::read_only);
    CHECK(loaded.options.rates.iops == 100);
}

TEST_CASE("export create: rules of access") {
    KeyValues given;
    const auto flags = export_key_flags(given);
    const auto& access = *std::ranges::find(flags, "--access", &config::Flag::name);
    CHECK_FALSE(access.store("uid=0").has_value());
    CHECK_FALSE(access.store("tls_name=a.example,mode=read-only").has_value());
    CHECK(access.store("network").value().starts_with("'network' is no condition of a rule"));
    CHECK(access.store("mode=maybe").value().starts_with("mode: 'maybe' is"));
}

TEST_CASE("export: only requests that take long wait long for a server that does not respond") {
    CHECK(status::time_limit("list") <= std::chrono::seconds(10));
    for (const char* action :
         {"create", "clone", "save", "restore", "resize", "rename", "remove"}) {
        CHECK(status::time_limit(action) >= std::chrono::hours(1));
    }
}

}  // namespace
}  // namespace gpunbd::tools
