#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/server/daemon/control_plane/disk.hpp"
#include "tests/server/daemon/control_plane/in_process_server.hpp"
#include "tests/server/daemon/control_plane/in_process_supervisor.hpp"
#include "tests/server/daemon/control_plane/sequence.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

std::string refusal_of(const std::optional<Outcome>& outcome) {
    REQUIRE(outcome);
    const auto* const refusal = std::get_if<NotDone>(&*outcome);
    return refusal == nullptr ? "" : refusal->why;
}

// A server of the configuration, with a file to restore.
struct Rig {
    Rig() {
        std::filesystem::create_directory(folder);
        std::ofstream(folder + "/config.yaml")
            << "threads: 1\nexports: [{name: base, size: 1M, page_size: 64K, devices: [host], "
               "keep: true}]\n";
        std::ofstream(folder + "/image") << std::string(model_page, 'x');
        disk::release();
        disk::set_folder(folder);
        start();
    }
    ~Rig() {
        disk::release();
        server.reset();
        std::filesystem::remove_all(folder);
    }
    void start() {
        server.reset();
        server = std::make_unique<InProcessServer>(supervisor, folder + "/config.yaml");
    }
    std::shared_ptr<std::optional<Outcome>> perform(const ExportRequest& request) {
        const auto outcome = std::make_shared<std::optional<Outcome>>();
        server->run_time_exports->perform(
            request, Completion([outcome](Outcome its) { *outcome = std::move(its); }));
        return outcome;
    }
    // Returns why it was refused; empty: it was not.
    std::string make(const ExportRequest& request) {
        const auto outcome = perform(request);
        server->run_until([&] { return outcome->has_value(); });
        server->settle();
        return refusal_of(*outcome);
    }
    // The same, for a clone.
    std::string make_clone(const std::string& client, const std::string& peer) {
        std::optional<std::string> answer;
        server->context.exports.clone_requests().send(
            {.template_name = "node",
             .client = client,
             .peer = peer,
             .answer = [&](std::string why) { answer = std::move(why); }});
        server->run_until([&] { return answer.has_value(); });
        server->settle();
        return *answer;
    }
    static config::ExportOptions keys(const std::string& name) {
        config::ExportOptions options;
        options.name = name;
        options.size = config::Size{.bytes = 16 * model_page};
        options.page_size = model_page;
        options.devices = {"host"};
        options.keep = true;
        return options;
    }
    // Its first read waits for disk::release().
    std::shared_ptr<std::optional<Outcome>> begin_restore_to(const std::string& name) {
        disk::hold(0);
        const auto restore = perform(restore_to(name));
        server->run_until([] { return disk::is_holding(); });
        return restore;
    }
    RestoreExport restore_to(const std::string& name) const {
        return {.file = folder + "/image", .create = {.options = keys(name)}, .only_name = false};
    }

    const std::string folder = "/tmp/gpunbd-control-plane-" + std::to_string(::getpid());
    InProcessSupervisor supervisor;
    std::unique_ptr<InProcessServer> server;
};

TEST_CASE("control plane: a failed restore is withdrawn later if it cannot be at once") {
    Rig rig;
    const auto restore = rig.begin_restore_to("new");
    rig.server->context.lifecycle.enter(Phase::handing_over);
    disk::release(EIO);
    rig.server->run_until([&] { return restore->has_value(); });
    CHECK(contains(refusal_of(*restore), std::strerror(EIO)));
    const auto served = [&] { return rig.server->context.exports.find("new"); };
    REQUIRE(served());
    CHECK(served()->use->enter("someone").lease == nullptr);
    rig.server->context.lifecycle.enter(Phase::serving);
    SUBCASE("by the next change") { rig.perform(CreateExport{.options = Rig::keys("other")}); }
    SUBCASE("when the hand-over has failed") { rig.server->exports->resume(); }
    rig.server->settle();
    CHECK_FALSE(served());
    CHECK(rig.make(rig.restore_to("new")) == "");
}

TEST_CASE("control plane: a restore that fails leaves the kept contents of its name") {
    Rig rig;
    CHECK(rig.make(CreateExport{.options = Rig::keys("old")}) == "");
    const std::string instance = rig.server->context.exports.find("old")->info.instance;
    CHECK(rig.make(RemoveExport{.name = "old", .keep_contents = true}) == "");
    disk::fail(disk::Call::read, 0);
    CHECK(rig.make(rig.restore_to("old")) != "");
    disk::release();
    CHECK(rig.make(CreateExport{.options = Rig::keys("old")}) == "");
    CHECK(rig.server->context.exports.find("old")->info.instance == instance);
    CHECK(rig.make(RemoveExport{.name = "old", .keep_contents = true}) == "");
    CHECK(rig.make(rig.restore_to("old")) == "");
    CHECK(rig.server->context.kept.contents->summaries().size() == 2);  // base and the new
}

TEST_CASE("control plane: a restore that ends with the server leaves nothing of the new export") {
    Rig rig;
    const auto restore = rig.begin_restore_to("new");
    rig.server->context.lifecycle.enter(Phase::draining);
    disk::release();
    rig.server->run_until([&] { return !rig.server->saves->busy(); });
    rig.start();
    CHECK_FALSE(rig.server->context.exports.find("new"));
    CHECK(rig.server->context.kept.contents->summaries().size() == 1);  // base
}

TEST_CASE("control plane: changes that arrive together are made one after another") {
    Rig rig;
    const std::vector<std::string> names{"a", "b", "c"};
    std::vector<std::shared_ptr<std::optional<Outcome>>> outcomes;
    for (const std::string& name : names) {
        outcomes.push_back(rig.perform(CreateExport{.options = Rig::keys(name)}));
    }
    for (const auto& outcome : outcomes) {
        rig.server->run_until([&] { return outcome->has_value(); });
        CHECK(refusal_of(*outcome) == "");
    }
    for (const std::string& name : names) CHECK(rig.server->context.exports.find(name));
}

TEST_CASE("control plane: a removed export is not entered by a client that has found it before") {
    Rig rig;
    CHECK(rig.make(CreateExport{.options = Rig::keys("new")}) == "");
    const auto found = rig.server->context.exports.find("new");
    REQUIRE(found->use->enter("a client").lease);
    CHECK(rig.make(RemoveExport{.name = "new"}) == "");
    CHECK_FALSE(found->use->enter("a client").lease);
}

TEST_CASE(
    "control plane: an export has one of its names if the server dies while it gets another") {
    for (const std::uint64_t message : {0, 1}) {  // the options of the new name; the end of others
        CAPTURE(message);
        Rig rig;
        CHECK(rig.make(CreateExport{.options = Rig::keys("old")}) == "");
        const std::string instance = rig.server->context.exports.find("old")->info.instance;
        rig.supervisor.kill_at(message);
        rig.perform(RenameExport{.name = "old", .new_name = "new"});
        rig.server->run_until([&] { return rig.supervisor.is_dead(); });
        rig.start();
        const auto found = rig.server->context.exports.find(message == 0 ? "old" : "new");
        REQUIRE(found);
        CHECK(found->info.instance == instance);
        CHECK_FALSE(rig.server->context.exports.find(message == 0 ? "new" : "old"));
    }
}

TEST_CASE("control plane: a restore that ends with the server does not change what is saved") {
    Rig rig;
    const std::string saved = rig.folder + "/saved";
    std::ofstream(rig.folder + "/config.yaml")
        << "threads: 1\nexports: [{name: base, size: 1M, page_size: 64K, devices: [host], "
           "save: {path: "
        << saved << ", at: stop}}]\n";
    std::ofstream(saved) << "earlier contents";
    rig.start();
    disk::hold(0);
    rig.perform(RestoreExport{.file = rig.folder + "/image",
                              .create = {.options = Rig::keys("base")},
                              .only_name = true});
    rig.server->run_until([] { return disk::is_holding(); });
    rig.server->terminate();
    // The second one if the restore ends before the stop.
    const int first = std::ifstream(saved).get();
    CHECK((first == 'e' || first == 'x'));
}

TEST_CASE("control plane: contents of a removed export are freed when their grace is over") {
    Rig rig;
    rig.server->context.options.keeping.grace = std::chrono::seconds(1);
    CHECK(rig.make(CreateExport{.options = Rig::keys("old")}) == "");
    const KeptContents& contents = *rig.server->context.kept.contents;
    CHECK(rig.make(RemoveExport{.name = "old", .keep_contents = true}) == "");
    rig.server->run_until([&] { return contents.summaries().size() == 1; });
    CHECK(contents.unused().empty());
}

TEST_CASE("control plane: a reload that is refused does not change the spill memory of devices") {
    Rig rig;
    std::ofstream(rig.folder + "/config.yaml")
        << "devices: [{id: host, spill: [{file: " << rig.folder
        << "/spill, size: 2M}]}]\nthreads: 1\n"
           "exports: [{name: base, size: 1M, page_size: 64K, devices: [host], keep: true}, "
           "{name: other, size: 1M, devices: [\"cuda:99\"]}]\n";
    rig.server->exports->reload_file();
    rig.server->settle();
    DeviceRegistry& devices = rig.server->context.devices;
    CHECK_FALSE(rig.server->context.exports.find("other"));
    CHECK(devices.spills_of({&devices.open("host")}).empty());
}

TEST_CASE("control plane: clients get as many clones as their template permits") {
    Rig rig;
    config::ExportOptions node;
    node.name = "node";
    node.clone_per_client.of = "base";
    node.clone_per_client.name = config::ClientId::machine;
    node.clone_per_client.max = 3;
    node.clone_per_client.max_per_peer = 2;
    CHECK(rig.make(CreateExport{.options = node}) == "");
    const std::string refusal = "there are too many clones of this export";
    CHECK(rig.make_clone("a", "x") == "");
    CHECK(rig.make_clone("b", "x") == "");
    CHECK(rig.make_clone("b", "x") == "");  // it has one
    CHECK(rig.make_clone("c", "x") == refusal);
    CHECK(rig.make_clone("c", "y") == "");
    CHECK(rig.make_clone("d", "y") == refusal);
    CHECK(rig.server->context.exports.snapshot()->size() == 4);
}

// Of the environment.
std::optional<std::uint64_t> variable(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? std::nullopt : std::optional(std::strtoull(text, nullptr, 10));
}

void run_sequence(std::uint64_t seed, bool prints = false) {
    Sequence sequence(seed, prints);
    try {
        sequence.run(variable("MODEL_STEPS").value_or(15));
    } catch (const std::exception& error) {
        FAIL_CHECK("sequence " << seed << ": " << std::string(error.what())
                               << "\nRepeat it with MODEL_SEED=" << seed << " control_plane_tests"
                               << "\nIts steps:" << sequence.steps_text());
    }
}

TEST_CASE("control plane: random changes") {
    if (const auto seed = variable("MODEL_SEED")) return run_sequence(*seed, true);
    const std::uint64_t first = variable("MODEL_FIRST").value_or(0);
    const std::uint64_t count = variable("MODEL_SEQUENCES").value_or(GPUNBD_MODEL_SEQUENCES);
    for (std::uint64_t seed = first; seed != first + count; ++seed) run_sequence(seed);
}

}  // namespace
}  // namespace gpunbd::server::test
