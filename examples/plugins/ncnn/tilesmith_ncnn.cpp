#include "tilesmith_ncnn.hpp"

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

// A Mat has its channels `cstep` elements apart, an operator's tensors are dense: bytes of a channel, and between two.
struct Channels {
    explicit Channels(const ncnn::Mat &m)
        : count(m.dims < 3 ? 1 : static_cast<std::size_t>(m.c)),
          size(m.elemsize * static_cast<std::size_t>(m.w) * static_cast<std::size_t>(m.h) *
               static_cast<std::size_t>(m.d)),
          step(m.dims < 3 ? size : m.cstep * m.elemsize) {}
    bool are_dense() const { return count == 1 || size == step; }
    const std::size_t count, size, step;
};

// The shape of a Mat, with axes of extent 1 in front up to `rank`: a Mat has no batch.
bool shape_of(const ncnn::Mat &m, std::int64_t rank, tilesmith_shape &shape) {
    const int all[] = {m.c, m.d, m.h, m.w};
    const int three[] = {m.c, m.h, m.w};
    const int *extents = m.dims == 4 ? all : three + (3 - m.dims);
    if (m.empty() || m.elempack != 1 || rank < m.dims)
        return false;
    shape.rank = rank;
    for (std::int64_t axis = 0; axis < rank; axis++)
        shape.extents[axis] = axis < rank - m.dims ? 1 : extents[axis - (rank - m.dims)];
    return true;
}

// A Mat of a shape, without axes of extent 1 in front where it has more than four, or than `dims`.
bool create(ncnn::Mat &m, const tilesmith_shape &shape, int dims, std::size_t bytes, ncnn::Allocator *allocator) {
    std::int64_t skipped = 0;
    while (shape.rank - skipped > dims && shape.rank > skipped && shape.extents[skipped] == 1)
        skipped++;
    const std::int64_t left = shape.rank - skipped;
    int e[4] = {1, 1, 1, 1};
    if (left > 4)
        return false;
    for (std::int64_t axis = 0; axis < left; axis++) {
        if (shape.extents[skipped + axis] > INT_MAX)
            return false;
        e[axis] = static_cast<int>(shape.extents[skipped + axis]);
    }
    if (left == 4)
        m.create(e[3], e[2], e[1], e[0], bytes, allocator);
    else if (left == 3)
        m.create(e[2], e[1], e[0], bytes, allocator);
    else if (left == 2)
        m.create(e[1], e[0], bytes, allocator);
    else
        m.create(e[0], bytes, allocator);
    return !m.empty();
}

// Memory for `bytes`.
bool allocate(ncnn::Mat &m, std::size_t bytes, ncnn::Allocator *allocator) {
    if (bytes / 4 >= INT_MAX)
        return false;
    m.create(static_cast<int>(bytes / 4 + 1), std::size_t(4), allocator);
    return !m.empty();
}

void pack(const ncnn::Mat &from, void *to) {
    const Channels c(from);
    for (std::size_t i = 0; i < c.count; i++)
        std::memcpy(static_cast<char *>(to) + i * c.size, static_cast<const char *>(from.data) + i * c.step, c.size);
}

void unpack(const void *from, ncnn::Mat &to) {
    const Channels c(to);
    for (std::size_t i = 0; i < c.count; i++)
        std::memcpy(static_cast<char *>(to.data) + i * c.step, static_cast<const char *>(from) + i * c.size, c.size);
}

class OperatorLayer : public ncnn::Layer {
public:
    explicit OperatorLayer(const tilesmith_operator *op) : op(op) {
        one_blob_only = false;
        support_inplace = false;
    }

    ~OperatorLayer() override { op->destroy(kernel); }

    int create_pipeline(const ncnn::Option &opt) override {
        tilesmith_options options{};
        options.abi = TILESMITH_ABI;
        options.size = sizeof options;
        options.threads = opt.num_threads;
        return op->create(op, &options, &kernel) ? -1 : 0;
    }

    int destroy_pipeline(const ncnn::Option &) override {
        op->destroy(kernel);
        kernel = nullptr;
        return 0;
    }

    using ncnn::Layer::forward;

    int forward(const std::vector<ncnn::Mat> &bottom_blobs, std::vector<ncnn::Mat> &top_blobs,
                const ncnn::Option &opt) const override {
        const tilesmith_description &d = *op->description;
        const auto input_count = static_cast<std::size_t>(d.input_count);
        const auto output_count = static_cast<std::size_t>(d.output_count);
        if (bottom_blobs.size() != input_count || top_blobs.size() != output_count)
            return -1;
        std::vector<tilesmith_shape> shapes(input_count), results(output_count);
        std::vector<ncnn::Mat> dense(input_count + output_count);
        std::vector<const void *> inputs(input_count);
        std::vector<void *> outputs(output_count);
        int dims = 1; // of the largest input
        for (std::size_t i = 0; i < input_count; i++) {
            const ncnn::Mat &m = bottom_blobs[i];
            const Channels c(m);
            if (m.elemsize != static_cast<std::size_t>(d.inputs[i].element_bytes) ||
                !shape_of(m, d.inputs[i].rank, shapes[i]))
                return -1;
            dims = m.dims > dims ? m.dims : dims;
            inputs[i] = m.data;
            if (!c.are_dense()) {
                if (!allocate(dense[i], c.count * c.size, opt.workspace_allocator))
                    return -100;
                pack(m, dense[i].data);
                inputs[i] = dense[i].data;
            }
        }
        if (op->shapes(kernel, shapes.data(), results.data()))
            return -1;
        for (std::size_t o = 0; o < output_count; o++) {
            const auto bytes = static_cast<std::size_t>(d.outputs[o].element_bytes);
            if (!create(top_blobs[o], results[o], dims, bytes, opt.blob_allocator))
                return -100;
            const Channels c(top_blobs[o]);
            outputs[o] = top_blobs[o].data;
            if (!c.are_dense()) {
                if (!allocate(dense[input_count + o], c.count * c.size, opt.workspace_allocator))
                    return -100;
                outputs[o] = dense[input_count + o].data;
            }
        }
        ncnn::Mat workspace;
        const std::int64_t bytes = op->workspace_bytes(kernel, shapes.data());
        if (bytes < 0 || !allocate(workspace, static_cast<std::size_t>(bytes), opt.workspace_allocator))
            return -100;
        if (op->run(kernel, shapes.data(), inputs.data(), outputs.data(), workspace.data))
            return -1;
        for (std::size_t o = 0; o < output_count; o++)
            if (outputs[o] != top_blobs[o].data)
                unpack(outputs[o], top_blobs[o]);
        return 0;
    }

private:
    const tilesmith_operator *op;
    tilesmith_model *kernel = nullptr;
};

ncnn::Layer *make(void *op) { return new OperatorLayer(static_cast<const tilesmith_operator *>(op)); }

void unmake(ncnn::Layer *layer, void *) { delete layer; }

std::int32_t add(void *net, const tilesmith_operator *op) {
    return static_cast<ncnn::Net *>(net)->register_custom_layer(op->name, make, unmake,
                                                                 const_cast<tilesmith_operator *>(op));
}

} // namespace

int tilesmith_register_layers(ncnn::Net &net, int32_t (*plugin)(tilesmith_add_fn add, void *engine)) {
    return plugin(add, &net);
}
