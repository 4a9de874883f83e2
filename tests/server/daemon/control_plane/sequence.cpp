#include "tests/server/daemon/control_plane/sequence.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <variant>

#include "tests/server/daemon/control_plane/disk.hpp"
#include "tests/server/daemon/control_plane/page_contents.hpp"

namespace gpunbd::server::test {

Sequence::Sequence(std::uint64_t seed, bool prints) : random_(seed), seed_(seed), prints_(prints) {
    std::string folder = "/dev/shm/gpunbd-model-XXXXXX";
    if (::access("/dev/shm", W_OK) != 0) folder = "/tmp/gpunbd-model-XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder for images");
    folder_ = folder;
    disk::release();
    disk::set_folder(folder_ + "/image");
    keeps_ = chance(0.75);
    has_extra_ = chance(0.5);
    model_.exports["base"] = configured();
    if (has_extra_) model_.exports["extra"] = configured();
    model_.templates["node"] = "base";
    for (const char* name : {"one", "two"}) write_image(name);
}

Sequence::~Sequence() {
    disk::release();
    server_.reset();
    std::filesystem::remove_all(folder_);
}

void Sequence::run(std::uint64_t steps) {
    write_config();
    start();
    check();
    for (std::uint64_t i = 0; i != steps; ++i) {
        random_step();
        check();
    }
    log("remove all");
    remove_all();
    check();
}

std::string Sequence::steps_text() const {
    std::string all;
    for (const std::string& each : steps_) all += "\n    " + each;
    return all;
}

// --- random choices

std::string Sequence::any_export(const Wanted& wanted) {
    std::vector<std::string> names;
    for (const auto& [name, each] : model_.exports) {
        if (!model_.closed.contains(name) && (!wanted || wanted(name, each))) names.push_back(name);
    }
    return names.empty() ? std::string() : any_of(names);
}

std::string Sequence::free_name(bool of_kept) {
    std::vector<std::string> names;
    for (const std::string name : {"a", "b", "c", "d", "extra"}) {
        const bool is_configured = has_extra_ && name == "extra";
        if (!model_.exports.contains(name) && !model_.closed.contains(name) && !is_configured &&
            (!of_kept || model_.kept.contains(name))) {
            names.push_back(name);
        }
    }
    return names.empty() ? std::string() : any_of(names);
}

// --- the server and its files

ModelExport Sequence::configured() const {
    return {.pages = ModelPages(16), .keep = keeps_, .configured_pages = 16};
}

void Sequence::write_config() const {
    std::ofstream file(config_file());
    const std::string keys = std::string(", size: 1M, page_size: 64K, devices: [host], keep: ") +
                             (keeps_ ? "true" : "false") + "}\n";
    file << "threads: 1\npipeline: {chunk_size: 64K, pinned: 1M}\nkeeping: {grace: 3600}\n";
    if (!keeps_) {
        file << "devices: [{id: host, spill: [{file: '" << folder_ << "/spill', size: 16M}]}]\n";
    }
    file << "exports:\n  - {name: base" << keys
         << "  - {name: node, clone_per_client: {of: base, name: machine, max: 40}}\n";
    if (has_extra_) file << "  - {name: extra" << keys;
}

void Sequence::write_image(const std::string& name) {
    const std::string path = folder_ + "/image-" + name;
    ModelPages pages(chance(0.3) ? 32 : 16);
    for (ModelPage& each : pages) {
        if (chance(0.4)) each = new_page();
    }
    pages[up_to(pages.size() - 1)] = new_page();
    std::ofstream file(path, std::ios::binary);
    std::vector<std::byte> bytes(model_page);
    for (std::size_t i = 0; i != pages.size(); ++i) {
        if (pages[i].contents == 0) continue;
        fill_page(bytes, pages[i].contents);
        file.seekp(static_cast<std::streamoff>(i * model_page));
        file.write(reinterpret_cast<const char*>(bytes.data()),
                   static_cast<std::streamsize>(bytes.size()));
    }
    file.close();
    std::filesystem::resize_file(path, pages.size() * model_page);
    files_[path] = pages;
}

void Sequence::start() { server_ = std::make_unique<InProcessServer>(supervisor_, config_file()); }

std::shared_ptr<const Export> Sequence::served(const std::string& name) const {
    return server_->context.exports.find(name);
}

ModelPage Sequence::new_page() {
    ++pages_;
    return {.contents = (seed_ << 20) + pages_, .id = pages_};
}

ModelPages Sequence::copies(const ModelPages& pages) {
    ModelPages all = pages;
    for (ModelPage& each : all) {
        if (each.contents != 0) each.id = ++pages_;
    }
    return all;
}

// --- steps

void Sequence::log(const std::string& text) {
    steps_.push_back(text);
    if (prints_) std::fprintf(stderr, "  %s\n", text.c_str());
}

Sequence::Submitted Sequence::submit(Step step) {
    log(step.text);
    Submitted submitted{.step = std::move(step), .answer = std::make_shared<Answer>(supervisor_)};
    submitted.step.begin(Completion(
        [answer = submitted.answer](Outcome outcome) { answer->set(std::move(outcome)); }));
    return submitted;
}

void Sequence::wait_for(const Submitted& submitted) {
    server_->run_until([&] { return submitted.answer->has_value(); });
}

void Sequence::apply_answer(const Submitted& submitted) {
    const Outcome outcome = submitted.answer->value();
    const auto* const refusal = std::get_if<NotDone>(&outcome);
    const bool done = refusal == nullptr;
    if (!done) log("... " + refusal->why);
    const auto& expected = submitted.step.expected_done;
    if (expected && *expected != done && !disk::has_failed()) {
        throw Violation(done ? "a change is done that must be refused"
                             : "a change is refused: " + refusal->why);
    }
    if (done) submitted.step.effect(model_);
}

void Sequence::make(Step step) {
    const Submitted submitted = submit(std::move(step));
    wait_for(submitted);
    server_->settle();
    apply_answer(submitted);
}

void Sequence::make_or_kill(std::optional<Step> step) {
    if (step) {
        keeps_&& chance(0.05) ? make_and_kill(*std::move(step)) : make(*std::move(step));
    }
    disk::release();
}

void Sequence::random_step() {
    struct Kind {
        unsigned weight;
        std::function<void()> make;
    };
    const Kind kinds[] = {{5, [&] { make_or_kill(create()); }},
                          {12, [&] { write(); }},
                          {6, [&] { make_or_kill(clone()); }},
                          {2, [&] { clone_during_writes(); }},
                          {2, [&] { make_or_kill(add_template()); }},
                          {3, [&] { make_or_kill(client_clone()); }},
                          {4, [&] { make_or_kill(resize()); }},
                          {6, [&] { make_or_kill(remove()); }},
                          {3, [&] { make_or_kill(save()); }},
                          {4, [&] { make_or_kill(restore()); }},
                          {3, [&] { restore_with_read_error(); }},
                          {8, [&] { restore_that_stops(); }},
                          {3, [&] { kill(); }},
                          {2, [&] { upgrade(); }},
                          {1, [&] { terminate(); }},
                          {4, [&] { reload(); }},
                          {1, [&] { make_or_kill(drop()); }},
                          {1, [&] { pass_grace_period(); }},
                          {3, [&] { reclaim(); }},
                          {2, [&] { make_or_kill(end_reclaim()); }}};
    unsigned sum = 0;
    for (const Kind& each : kinds) sum += each.weight;
    std::uint64_t at = up_to(sum - 1);
    for (const Kind& each : kinds) {
        if (at < each.weight) return each.make();
        at -= each.weight;
    }
}

void Sequence::remove_all() {
    const Model all = model_;
    for (const auto& [name, source] : all.templates) {
        if (name == "node") continue;  // of the configuration
        make({.text = "remove " + name,
              .begin = changing(RemoveExport{.name = name}),
              .effect = [name = name](Model& model) { model.templates.erase(name); },
              .expected_done = true});
    }
    for (const auto& [name, each] : all.exports) {
        if (each.run_time) make(removal(name, false));
    }
    if (model_.kept.empty()) extra_pages_ = 0;
}

}  // namespace gpunbd::server::test
