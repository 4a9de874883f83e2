// The registry alone, and with sessions that use it.
#include "server/exports/export_registry.hpp"

#include "server/daemon/export_factory.hpp"
#include "server/exports/device_registry.hpp"
#include "server/exports/offered_exports.hpp"
#include "tests/server/happy_script.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

std::vector<std::string> names(const ExportRegistry& registry) {
    std::vector<std::string> all;
    const auto exports = registry.snapshot();
    for (const auto& each : *exports) all.push_back(each->info.name);
    return all;
}

std::shared_ptr<const Export> named(const std::string& name) {
    auto made = std::make_shared<Export>();
    made->info.name = name;
    return made;
}

TEST_CASE("registry: finds exports by name, in order, and the default export") {
    ExportRegistry registry;
    CHECK(registry.snapshot()->empty());
    CHECK(registry.open("") == nullptr);
    registry.replace({named("b"), named("a")});
    CHECK(names(registry) == std::vector<std::string>{"b", "a"});
    CHECK(registry.open("")->info.name == "b");
    CHECK(registry.open("a")->info.name == "a");
    CHECK(registry.open("A") == nullptr);
    CHECK(registry.open("a ") == nullptr);
    const auto before = registry.snapshot();
    registry.replace({named("a"), named("")});
    CHECK(registry.open("")->info.name.empty());
    CHECK(registry.open("b") == nullptr);
    CHECK(before->front()->info.name == "b");
}

TEST_CASE("registry: a lookup finds exports in and out of order") {
    const ExportRegistry::Exports exports{named("a"), named("b"), named("c"), named("d")};
    const std::vector<std::vector<std::string>> orders{
        {"a", "b", "c", "d", "new"}, {"a", "c", "d", "new"}, {"b", "a", "d", "c"},
        {"d", "c", "new", "b", "a"}, {"new", "a", "b", "c"}, {"c", "new", "a"},
    };
    for (const auto& order : orders) {
        ExportLookup lookup(exports);
        for (const std::string& name : order) {
            CAPTURE(name);
            const auto expected = std::ranges::find_if(
                exports, [&](const auto& each) { return each->info.name == name; });
            const auto* const found = lookup.find(name);
            CHECK((found == nullptr) == (expected == exports.end()));
            if (found != nullptr) CHECK(*found == *expected);
        }
    }
}

TEST_CASE("registry: may be replaced while other threads read it") {
    ExportRegistry registry;
    config::ExportOptions node;
    node.name = "node";
    node.clone_per_client.of = "x";
    node.clone_per_client.name = config::ClientId::machine;
    registry.replace({named("x")}, templates_in({node}));
    std::atomic<bool> stop{false};
    std::thread looks([&] {
        const Peer anybody;
        const OfferedExports offered(registry, anybody);
        while (!stop) {
            const auto found = registry.open("");
            if (!found || found->info.name.size() != 1 || registry.snapshot()->size() != 1)
                std::abort();
            const auto clone = offered.find("node/a");
            if (clone && clone->name != "node") std::abort();
        }
    });
    for (int i = 0; i != 2000; ++i) {
        registry.replace({named(i % 2 == 0 ? "y" : "x")}, templates_in({node}));
    }
    stop = true;
    looks.join();
}

TEST_CASE("registry: a session keeps a replaced export until it ends") {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        Rig rig({.devices = variant.devices});
        const Ask write{CommandType::write, 0, 2 * page, 0, 7};
        const Ask read{CommandType::read, 0, 2 * page};
        Model old_model(rig.options.size);
        Model new_model(2 * page);
        std::weak_ptr<storage::Volume> old_volume = rig.volume;

        Client old_client = rig.enter(variant.handshake());
        old_model.ask(old_client, write);
        rig.exports.replace({rig.make_export("new", 2 * page)});
        rig.volume.reset();
        CHECK_FALSE(old_volume.expired());

        Client new_client = rig.enter(
            {.structured = variant.structured, .extended = variant.extended, .name = "new"});
        new_model.ask(new_client, read);
        old_model.ask(old_client, read);
        const Ask behind{CommandType::read, 2 * page, 1};
        CHECK(new_client.ask(behind).error == Error::einval);
        CHECK(old_client.ask(behind).error == Error::none);
        Client late = rig.connect({.name = "gone"});
        CHECK(late.shake_hands() == (1U << 31) + 6);

        CHECK(new_client.ask(write).error == Error::none);
        old_client.close();
        late.close();
        rig.settle();
        new_model.apply(write, true);
        new_model.ask(new_client, read);
        while (rig.worker.connections() != 1) rig.let_run();
        rig.let_run();
        CHECK(old_volume.expired());
        rig.check_over(new_client);
    }
}

TEST_CASE("export factory: a new configuration keeps the volumes that it does not change") {
    DeviceRegistry devices({}, false);
    config::ExportOptions a;
    a.name = "a";
    a.size = {.bytes = 4 * config::MiB};
    a.devices = {"host"};
    config::ExportOptions b = a;
    b.name = "b";
    const MadeExports first = make_exports({a, b}, devices, {});
    CHECK(first.problems.empty());
    REQUIRE(first.exports.size() == 2);
    CHECK(first.exports[0]->info.size == 4 * config::MiB);

    a.description = "another";
    a.read_only = true;
    b.size = {.bytes = 6 * config::MiB};
    const MadeExports second = make_exports({b, a}, devices, first.exports);
    CHECK(second.problems.empty());
    REQUIRE(second.exports.size() == 2);
    CHECK(second.exports[0]->info.name == "b");
    CHECK(second.exports[0]->volume != first.exports[1]->volume);
    CHECK(second.exports[0]->info.size == 6 * config::MiB);
    CHECK(second.exports[1]->volume == first.exports[0]->volume);
    CHECK(second.exports[1]->info.read_only);
    CHECK(second.exports[1]->info.description.starts_with("another (instance "));
    CHECK_FALSE(first.exports[0]->info.read_only);

    // The error reports all problems, not only the first.
    a.devices = {"no such device"};
    b.size = {.bytes = std::uint64_t{1} << 60};
    const MadeExports third = make_exports({a, b}, devices, second.exports);
    REQUIRE(third.problems.size() == 2);
    CHECK(third.problems[0].starts_with("export 'a'"));
    CHECK(third.problems[1].starts_with("export 'b'"));
}

TEST_CASE("exports: block sizes are advertised, and data are not truncated to fit them") {
    config::DeviceOptions host;
    host.id = "host";
    host.capacity = config::MiB;
    host.reserve = 0;
    DeviceRegistry devices({host}, false);
    config::ExportOptions options;
    options.devices = {"host"};
    options.page_size = 64 * kib;
    options.size = config::Size{.percent = 33};
    options.block_size = {512, std::nullopt, 2 * config::MiB};
    const MadeExports first = make_exports({options}, devices, {});
    REQUIRE(first.exports.size() == 1);
    const protocol::ExportInfo& info = first.exports[0]->info;
    CHECK(info.minimum_block == 512);
    CHECK(info.preferred_block == 4096);
    CHECK(info.maximum_payload == 2 * mib);
    REQUIRE(info.size % (64 * kib) != 0);

    options.block_size.minimum = 64 * kib;
    const MadeExports second = make_exports({options}, devices, first.exports);
    REQUIRE(second.problems.size() == 1);
    CHECK(contains(second.problems[0], "is not a multiple of block_size.minimum (65536)"));
    options.size = config::Size{.percent = 34};
    const MadeExports third = make_exports({options}, devices, first.exports);
    CHECK(third.problems.empty());
    REQUIRE(third.exports.size() == 1);
    CHECK(third.exports[0]->info.size % (64 * kib) == 0);
    CHECK(third.exports[0]->info.preferred_block == 64 * kib);
}

}  // namespace
}  // namespace gpunbd::server::test
