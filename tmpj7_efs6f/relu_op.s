	.file	"relu_op.c"
	.text
	.p2align 4
	.globl	relu_op
	.type	relu_op, @function
relu_op:
.LFB2:
	.cfi_startproc
	vmovups	(%rdi), %ymm1
	vxorps	%xmm0, %xmm0, %xmm0
	xorl	%eax, %eax
	vcmpltps	%ymm0, %ymm1, %ymm0
	vpandn	%ymm1, %ymm0, %ymm0
	vmovups	%ymm0, (%rsi)
	vzeroupper
	ret
	.cfi_endproc
.LFE2:
	.size	relu_op, .-relu_op
	.ident	"GCC: (Debian 12.2.0-14+deb12u1) 12.2.0"
	.section	.note.GNU-stack,"",@progbits
